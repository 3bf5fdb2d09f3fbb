"""Lints, which `rowkind check` reports: parts of a job that probably differ from what its author wanted.

A job with a lint can still run. Each lint says where it is, what to write instead, and what it costs: rows that the
result does not have, messages or state, or nothing but the reader's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from sqlglot import exp, parse_one

from rowkind.operators.rank.ranking import RankFunction
from rowkind.service.job.columns import declared
from rowkind.service.job.model import Job
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalNode, PhysicalSink
from rowkind.service.physical.operators import PhysicalAggregate, PhysicalOver, PhysicalRank
from rowkind.service.physical.tree import inputs, without_unions
from rowkind.service.plan.errors import span, written
from rowkind.service.plan.pipeline import parsed_text, place, texts

LintCost = Literal["wrong rows", "rows", "messages", "state", "nothing"]

_STANDS = (exp.Predicate, exp.Select, exp.Alias, exp.Group, exp.Ordered, exp.AggFunc, exp.Window, exp.Connector)
"""Parent nodes of a string literal that may be meant as a column. In other functions, it may be a field name."""

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_NEVER_NULL = (*_COMPARISONS, exp.Like, exp.ILike, exp.Between, exp.In)
"""Predicates that are not true if one of their operands is NULL."""
_MAY_BE_TRUE = (exp.Coalesce, exp.Is, exp.If, exp.Case, exp.Or, exp.Not, exp.NullSafeEQ, exp.Query, exp.Anonymous)
"""Expressions in which NULL need not lead to NULL."""

_LEFT = {"RIGHT": "JOIN", "FULL": "LEFT JOIN"}
_RIGHT = {"LEFT": "JOIN", "FULL": "RIGHT JOIN"}
"""What is left of an outer join if WHERE drops the null-padded rows of the left side, or of the right side."""
_ARTICLES = {"JOIN": "an inner join", "LEFT JOIN": "a left join", "RIGHT JOIN": "a right join"}


@dataclass(frozen=True)
class Lint:
    """A lint: its position, what it says, and what it costs."""

    place: str
    text: str
    cost: LintCost
    shown: str = ""
    """The position in the SQL with the line, if the lint concerns a part of a query."""

    def __str__(self) -> str:
        shown = f", {self.shown}" if self.shown else ""
        return f"{self.place}: [cost: {self.cost}] {self.text}{shown}"


def lints(job: Job, sinks: Sequence[PhysicalSink]) -> Iterator[Lint]:
    """Yield each lint of a job with the plans of its sinks. Raises PlanError or JobError if it cannot be parsed."""
    trees = {origin: parsed_text(job, origin, sql) for origin, sql in texts(job).items()}
    yield from _unused(job, trees, sinks)
    columns = _columns(job, trees)
    for origin, tree in trees.items():
        for node, text, cost in (*_quoted(tree, columns), *_null_comparisons(tree), *_inner_joins(tree, columns)):
            if (at := span(node)) is not None:
                sql = texts(job)[origin]
                yield Lint(place(job, origin, sql, at.first), text, cost, at.show(sql))
    for sink in sinks:
        yield from _rank_numbers(job, sink)


def _columns(job: Job, trees: Mapping[str, exp.Expr]) -> dict[str, tuple[str, ...]]:
    """Return the columns of each table and view, keyed by its lowercase name."""
    columns = {name.lower(): declared(job, name).names for name in job.tables}
    # A view may be declared before the views that it reads, so its columns may become known only in a later pass.
    for _ in job.views:
        before = dict(columns)
        columns |= {name.lower(): tuple(_names(trees[f"views.{name}"], columns)) for name in job.views}
        if columns == before:
            break
    return columns


def _unused(job: Job, trees: Mapping[str, exp.Expr], sinks: Sequence[PhysicalSink]) -> Iterator[Lint]:
    """Yield views and tables that no sink reads, and watermarks that no operator follows."""
    names = {name.lower(): name for name in (*job.tables, *job.views)}
    read, new = set[str](), [f"sinks.{name}.sql" for name in job.sinks]
    while new:
        found = {names.get(table.name.lower(), "") for table in trees[new.pop()].find_all(exp.Table)} - read - {""}
        read |= found
        new += [f"views.{name}" for name in found if name in job.views]
    for section, declared_names in (("views", job.views), ("tables", job.tables)):
        for name in declared_names:
            if name not in read:
                yield Lint(place(job, f"{section}.{name}"), f"no sink reads {name}: remove it", "nothing")
    followed = {table for clock in graph(sinks).clocks for table, _ in clock.tables}
    for name, table in job.tables.items():
        if table.watermark is not None and name in read and name not in followed:
            text = "no query closes a window, joins by time or drops rows by this watermark: remove it"
            yield Lint(place(job, f"tables.{name}.watermark"), text, "nothing")


def _quoted(tree: exp.Expr, columns: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[exp.Expr, str, LintCost]]:
    """Yield text in double quotes that equals a column's name. Other systems would read it as the column."""
    known = _known(tree, columns)
    for text in tree.find_all(exp.Literal):
        if not (text.is_string and written(text).startswith('"') and isinstance(text.parent, _STANDS)):
            continue
        if (column := known.get(text.name.lower())) is not None:
            said = (
                f'"{text.name}" is text, because Spark reads double quotes as text, but there is a column {column}: '
                f"write {column} for the column, or '{text.name}' for text"
            )
            yield text, said, "wrong rows"


def _null_comparisons(tree: exp.Expr) -> Iterator[tuple[exp.Expr, str, LintCost]]:
    """Yield comparisons with NULL, which are never true."""
    for compared in tree.find_all(*_COMPARISONS):
        if not (isinstance(compared.left, exp.Null) or isinstance(compared.right, exp.Null)):
            continue
        other = compared.right if isinstance(compared.left, exp.Null) else compared.left
        test = "IS NOT NULL" if isinstance(compared, exp.NEQ) else "IS NULL"
        yield compared, f"a comparison with NULL is never true: write {other.sql('spark')} {test}", "rows"


def _inner_joins(tree: exp.Expr, columns: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[exp.Expr, str, LintCost]]:
    """Yield conditions in WHERE that drop all null-padded rows of one side of an outer join."""
    columns = {**columns}
    for each in tree.find_all(exp.CTE):
        columns[each.alias.lower()] = tuple(_names(each.this, columns))
    for select in tree.find_all(exp.Select):
        where, padded = select.args.get("where"), dict(_padded(select))
        if where is None or not padded:
            continue
        for condition in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
            if not isinstance(condition, _NEVER_NULL) or condition.find(*_MAY_BE_TRUE):
                continue
            owners = (_owner(select, column, columns) for column in condition.find_all(exp.Column))
            if (name := next((owner for owner in owners if owner in padded), None)) is not None:
                relation, join = padded[name]
                text = (
                    f"this condition is not true if {relation.alias_or_name} has no match, so the outer join is "
                    f"{_ARTICLES[join]}: write {join}, or move the condition to ON"
                )
                yield condition, text, "rows"


def _padded(select: exp.Select) -> Iterator[tuple[str, tuple[exp.Expr, str]]]:
    """Yield the name of each relation in FROM whose columns an outer join can fill with NULL.

    With it are the relation, and the join that the outer join becomes if none of these rows are kept.
    """
    before = [from_.this] if (from_ := select.args.get("from_")) is not None else []
    for join in select.args.get("joins") or []:
        if join.side in ("RIGHT", "FULL"):
            yield from ((each.alias_or_name.lower(), (each, _LEFT[join.side])) for each in before)
        if join.side in ("LEFT", "FULL"):
            yield join.this.alias_or_name.lower(), (join.this, _RIGHT[join.side])
        before.append(join.this)


def _relations(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the relations in FROM, in order."""
    if (from_ := select.args.get("from_")) is not None:
        yield from_.this
    yield from (join.this for join in select.args.get("joins") or [])


def _owner(select: exp.Select, column: exp.Column, columns: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return the lowercase name of the relation in FROM to which a column belongs, or None if it is not known."""
    if any(_has([each.name for each in join.args.get("using") or []], column.name) for join in select.args["joins"]):
        return None  # The column comes from both relations.
    owners = [
        name
        for each in _relations(select)
        if (name := each.alias_or_name.lower()) and _has(_columns_of(each, columns), column.name)
    ]
    if column.table:
        return column.table.lower() if column.table.lower() in owners else None
    return owners[0] if len(owners) == 1 else None


def _columns_of(relation: exp.Expr, columns: Mapping[str, tuple[str, ...]]) -> Sequence[str]:
    """Return the known columns of a relation in FROM."""
    if isinstance(relation, exp.Subquery):
        return tuple(_names(relation.this, columns))
    return columns.get(relation.name.lower(), ()) if isinstance(relation, exp.Table) else ()


def _has(columns: Sequence[str], name: str) -> bool:
    return name.lower() in {column.lower() for column in columns}


@dataclass(frozen=True)
class _ResultColumn:
    """A column of the result. `computed`: whether it is computed from another column instead of being that column."""

    name: str
    computed: bool = False


def _rank_numbers(job: Job, sink: PhysicalSink) -> Iterator[Lint]:
    """Yield rank numbers in a result: if a row enters a partition, all rows below it have new numbers."""
    found = _numbers_in(sink, {name: (_ResultColumn(name),) for name in sink.value.names})
    for column, most in {column.name: (column, most) for column, most in found}.values():
        last = "" if most is None else f", up to {most - 1} per change"
        what = f"the result has the rank number {column.name}"
        if column.computed:
            what = f"the result's column {column.name} is computed from a rank number"
        text = (
            f"{what}: if a row enters or leaves, all rows below it are written again{last}. If readers can sort the "
            f"rows, leave {column.name} out of SELECT"
        )
        yield Lint(place(job, f"sinks.{sink.name}.sql"), text, "messages")


def _numbers_in(
    node: PhysicalSink | PhysicalNode, kept: Mapping[str, tuple[_ResultColumn, ...]]
) -> Iterator[tuple[_ResultColumn, int | None]]:
    """Yield each column of the result that follows a rank number, and the last number, None if there is no upper bound.

    `kept` has the columns of the node's own rows that the result has or is computed from.
    """
    if isinstance(node, PhysicalRank) and node.ranking.first != node.ranking.last:
        yield from ((each, node.ranking.last) for number in node.numbers for each in kept.get(number, ()))
    # If rows arrive in order, no row enters above another.
    if isinstance(node, PhysicalOver) and node.ahead is None:
        numbers = [call.name for call in node.calls if call.function in get_args(RankFunction)]
        yield from ((each, None) for number in numbers for each in kept.get(number, ()))
    if isinstance(node, PhysicalAggregate):
        return
    for below in without_unions(*inputs(node)):
        own = _sources(zip(below.calc.output.names, below.calc.columns, strict=True), kept)
        for expand in reversed(below.calc.expands):
            own = _sources(zip(expand.output.names, expand.carried, strict=False), own)
        yield from _numbers_in(below, own)


def _sources(
    computed: Iterable[tuple[str, Expression]], kept: Mapping[str, tuple[_ResultColumn, ...]]
) -> dict[str, tuple[_ResultColumn, ...]]:
    """Return the columns from which the columns in `kept` are computed, each with its columns of the result."""
    found: dict[str, tuple[_ResultColumn, ...]] = {}
    for name, expression in computed:
        for source in _followed(expression) if name in kept else ():
            own = [replace(each, computed=True) if expression.column is None else each for each in kept[name]]
            found[source] = (*found.get(source, ()), *own)
    return found


def _followed(expression: Expression) -> Iterable[str]:
    """Return the columns whose changes change the value of an expression.

    A column that is only compared, as in `n = 1`, changes the value of few rows.
    """
    if expression.column is not None:
        return (expression.column,)
    tree = parse_one(expression.sql, dialect="duckdb")
    return dict.fromkeys(column.name for column in tree.find_all(exp.Column) if not column.find_ancestor(exp.Predicate))


def _known(tree: exp.Expr, columns: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the columns of the tables, views and subqueries that a query may refer to, keyed by lowercase name."""
    read = [name for table in tree.find_all(exp.Table) for name in columns.get(table.name.lower(), ())]
    inner = [name for query in tree.find_all(exp.Query) if query is not tree for name in _names(query, columns)]
    return {name.lower(): name for name in (*read, *inner)}


def _names(query: exp.Expr, columns: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield the names of a query's result columns. Of `*`, only known columns are included."""
    while isinstance(query, exp.Subquery | exp.SetOperation):
        query = query.this
    for each in query.selects if isinstance(query, exp.Select) else ():
        if not each.is_star:
            yield each.output_name
            continue
        of = each.table.lower() if isinstance(each, exp.Column) else ""
        for relation in _relations(query) if isinstance(query, exp.Select) else ():
            if not of or relation.alias_or_name.lower() == of:
                yield from _columns_of(relation, columns)
