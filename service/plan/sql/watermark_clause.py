"""WATERMARK in FROM, as Spark has it: until when rows of a table may still come.

    FROM orders WATERMARK placed DELAY OF INTERVAL 5 SECONDS AS o
    FROM orders WATERMARK TIMESTAMP_MILLIS(ms) AS placed DELAY OF INTERVAL 5 SECONDS AS o

The second form puts the time before the columns of the table. It stands behind the name of a table and before its
alias. It says something of the table, and not of the query: every query of the job goes by it.
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
    """A clause behind the name of a `table`, what the table is called there, and which SQL that is in."""

    table: str
    alias: str
    clause: WatermarkClause
    origin: str


def clause_of(at: exp.Expr) -> WatermarkClause | None:
    """The clause behind a piece of FROM."""
    alias = at.args.get("alias")
    found = alias.args.get("watermark") if isinstance(alias, exp.TableAlias) else None
    return found if isinstance(found, WatermarkClause) else None


def table_watermarks(tree: exp.Expr, tables: Collection[str], origin: str) -> Iterator[TableWatermark]:
    """The clauses of a query, by the names that the job's tables have. Raises Refusal for one that is of no table."""
    names = {name.lower(): name for name in tables}
    for clause in tree.find_all(WatermarkClause):
        at = clause.parent and clause.parent.parent
        if not isinstance(at, exp.Table) or not isinstance(at.this, exp.Identifier) or at.name.lower() not in names:
            raise not_of_a_table(clause)
        if at.args["alias"].args.get("columns"):
            raise Refusal("WATERMARK and names for columns do not go together: name them in a derived table", clause)
        if not isinstance(clause.this, exp.Column) and not clause.args.get("alias"):
            raise Refusal(f"the time needs a name: write WATERMARK {sql_text(clause.this)} AS ts DELAY OF …", clause)
        yield TableWatermark(names[at.name.lower()], at.alias or at.name, clause, origin)


def not_of_a_table(clause: WatermarkClause) -> Refusal:
    """The refusal of a clause behind something else."""
    return Refusal(
        "WATERMARK stands behind the name of a table of the job: a watermark is about when the rows of a topic come. "
        "Write it inside of the view or the derived table, at the table",
        clause,
    )


def with_time(clause: WatermarkClause, scan: LogicalScan, relation: Relation) -> tuple[LogicalNode, Relation]:
    """A table with the time that the clause gives a name to, as the first column. Raises Refusal."""
    named = clause.args.get("alias")
    if named is None:
        return scan, relation
    if relation.find(named.name):
        raise Refusal(f"there is a column {named.name} already: give the time another name", named)
    time = scan.name(named.name)
    every = {name: resolved(name) for name in columns(scan)}
    outputs = {time: Scope((relation,)).resolve(clause.this), **every}
    return LogicalProject(scan, outputs), replace(relation, columns={named.name: time, **relation.columns})
