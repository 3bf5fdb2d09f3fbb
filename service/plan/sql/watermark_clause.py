"""The WATERMARK clause in FROM, as in Spark. It specifies how late a table's rows may arrive.

    FROM orders WATERMARK placed DELAY OF INTERVAL 5 SECONDS AS o
    FROM orders WATERMARK TIMESTAMP_MILLIS(ms) AS placed DELAY OF INTERVAL 5 SECONDS AS o

The second form adds the time as the table's first column. The clause follows the table's name and precedes the alias.
The watermark belongs to the table, not to the query: it applies in every query of the job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalProject, LogicalScan
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.scope import Relation, Scope
from rowkind.service.plan.syntax import WatermarkClause, sql_text


@dataclass(frozen=True)
class TableWatermark:
    """A WATERMARK clause, with the name and alias of the table to which it applies.

    `origin` is the name of the SQL text that contains the clause.
    """

    table: str
    alias: str
    clause: WatermarkClause
    origin: str


def clause_of(at: exp.Expr) -> WatermarkClause | None:
    """Return the WATERMARK clause of an item in FROM, or None if there is none."""
    alias = at.args.get("alias")
    found = alias.args.get("watermark") if isinstance(alias, exp.TableAlias) else None
    return found if isinstance(found, WatermarkClause) else None


def table_watermarks(tree: exp.Expr, tables: Collection[str], origin: str) -> Iterator[TableWatermark]:
    """Yield a query's WATERMARK clauses, with the names of the job's tables to which they apply.

    Raises Refusal for a clause that does not follow a table.
    """
    names = {name.lower(): name for name in tables}
    for clause in tree.find_all(WatermarkClause):
        at = clause.parent and clause.parent.parent
        if not isinstance(at, exp.Table) or not isinstance(at.this, exp.Identifier) or at.name.lower() not in names:
            raise not_of_a_table(clause)
        if at.args["alias"].args.get("columns"):
            raise Refusal(
                "WATERMARK and column names after the alias cannot be combined: name the columns in a derived table",
                clause,
            )
        if not isinstance(clause.this, exp.Column) and not clause.args.get("alias"):
            raise Refusal(
                f"the time of a watermark needs a name: write WATERMARK {sql_text(clause.this)} AS ts DELAY OF …",
                clause,
            )
        yield TableWatermark(names[at.name.lower()], at.alias or at.name, clause, origin)


def not_of_a_table(clause: WatermarkClause) -> Refusal:
    """Return the error for a clause that does not follow a table."""
    return Refusal(
        "WATERMARK must follow the name of a table of the job, because a watermark depends on when the rows of "
        "a topic arrive: move it to that table, inside the view or derived table",
        clause,
    )


def with_time(clause: WatermarkClause, scan: LogicalScan, relation: Relation) -> tuple[LogicalNode, Relation]:
    """Add the time that a clause defines with AS to a table as the first column. Raises Refusal."""
    named = clause.args.get("alias")
    if named is None:
        return scan, relation
    if relation.find(named.name):
        raise Refusal(f"there is already a column {named.name}: give the time another name", named)
    time = scan.name(named.name)
    every = {name: resolved(name) for name in columns(scan)}
    outputs = {time: Scope((relation,)).resolve(clause.this), **every}
    return LogicalProject(scan, outputs), replace(relation, columns={named.name: time, **relation.columns})
