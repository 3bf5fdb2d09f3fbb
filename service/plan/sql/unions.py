"""UNION, INTERSECT and EXCEPT.

UNION ALL    a Union of the inputs, whose columns are converted to common types
UNION        the same without duplicates, by an Aggregate without calls
INTERSECT    the distinct left rows that are also right rows: a semi join on all columns
EXCEPT       the distinct left rows that are not right rows: an anti join on all columns
… ALL        INTERSECT ALL and EXCEPT ALL count equal rows on each side, and repeat each row as the counts require

In INTERSECT and EXCEPT, NULL equals NULL, as in GROUP BY.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.physical.join_kinds import PhysicalJoinKind
from rowkind.service.plan.calls import LogicalAggregateCall
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalFilter, LogicalProject, LogicalUnion
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.scalar.types import BIGINT, common
from rowkind.service.plan.sql.context import Context, Queries, Selected
from rowkind.service.plan.sql.correlations import Correlation, beyond, equal_correlations
from rowkind.service.plan.sql.empty_groups import in_each_group
from rowkind.service.plan.sql.grouping import without_duplicates
from rowkind.service.plan.sql.parse import query

_LINK = "around."
"""The prefix of the names of link columns. No result column has this prefix."""


def set_operation(tree: exp.SetOperation, context: Context, queries: Queries) -> Selected:
    """Plan a set operation, except for a following ORDER BY or LIMIT. Raises Refusal."""
    if isinstance(tree, exp.Union):
        distinct = bool(tree.args.get("distinct"))
        parts = [part for each in (tree.this, tree.expression) for part in _flat(each, distinct=distinct)]
        branches, links = _branches(parts, context, queries)
        names = {name: f"{context.path}{name}" for name in branches[0].outputs}
        node: LogicalNode = LogicalUnion(tuple(_same(branches, list(names.values()), parts)), tree)
        if distinct:
            node = without_duplicates(node, tree)
        return _selected(node, names, links)
    word = "INTERSECT" if isinstance(tree, exp.Intersect) else "EXCEPT"
    parts = [tree.this, tree.expression]
    branches, links = _branches(parts, context, queries)
    names = {name: f"{context.path}{name}" for name in branches[0].outputs}
    left, right = _same(branches, list(names.values()), parts)
    path = queries.invent(context.path, word.lower())
    if not tree.args.get("distinct"):
        return _selected(_counted(left, right, path, tree), names, links)
    right = LogicalProject(
        right.input,
        {f"{path}{name}": right.outputs[own] for name, own in names.items()},
    )
    condition = tuple(
        exp.NullSafeEQ(this=resolved(own), expression=resolved(f"{path}{name}")) for name, own in names.items()
    )
    kind: PhysicalJoinKind = "semi" if isinstance(tree, exp.Intersect) else "anti"
    node = LogicalJoin(LogicalInput(without_duplicates(left, tree)), LogicalInput(right), condition, kind, tree)
    return _selected(node, names, links)


def _counted(left: LogicalProject, right: LogicalProject, path: str, at: exp.SetOperation) -> LogicalNode:
    """Plan INTERSECT ALL or EXCEPT ALL.

    Equal rows are counted on each side. A row is repeated LEAST(left, right) times for INTERSECT ALL, and left - right
    times for EXCEPT ALL.
    """
    counts = f"{path}left", f"{path}right"
    sides = []
    for number, side in enumerate((left, right)):
        tells = {name: exp.Boolean(this=place == number) for place, name in enumerate(counts)}
        sides.append(LogicalProject(side.input, {**side.outputs, **tells}))
    calls = {
        name: LogicalAggregateCall("count", (), BIGINT, name, at=exp.CountIf(this=resolved(name, like=at)))
        for name in counts
    }
    groups = without_duplicates(left, at).group
    node: LogicalNode = LogicalAggregate(LogicalInput(LogicalUnion(tuple(sides), at)), groups, calls, False, at)
    ours, theirs = (resolved(name, like=at) for name in counts)
    both = exp.Anonymous(this="LEAST", expressions=[ours, theirs])
    number_ = both if isinstance(at, exp.Intersect) else exp.Paren(this=exp.Sub(this=ours, expression=theirs))
    node = LogicalFilter(node, (exp.GT(this=number_.copy(), expression=exp.Literal.number(0)),))
    copies = exp.Anonymous(this="SEQUENCE", expressions=[exp.cast(exp.Literal.number(1), "BIGINT"), number_])
    expand = LogicalExpand(node, copies, {}, f"{path}#copy", copies)
    return LogicalProject(expand, {name: resolved(name) for name in groups})


def _selected(node: LogicalNode, names: dict[str, str], links: dict[str, Correlation]) -> Selected:
    """Return the result of a set operation. The link columns are not among its result columns."""
    outputs = {name: resolved(own) for name, own in names.items() if name not in links}
    return Selected(node, outputs, tuple(link.over(names[name]) for name, link in links.items()))


def _flat(tree: exp.Expr, *, distinct: bool) -> list[exp.Expr]:
    """Return the inputs of a nested UNION if the nesting makes no difference, otherwise only the query itself."""
    tree = query(tree)
    plain = not any(tree.args.get(name) for name in ("order", "limit", "offset", "with_"))
    if isinstance(tree, exp.Union) and plain and (distinct or not tree.args.get("distinct")):
        return [*_flat(tree.this, distinct=distinct), *_flat(tree.expression, distinct=distinct)]
    return [tree]


def _branches(
    parts: list[exp.Expr], context: Context, queries: Queries
) -> tuple[list[Selected], dict[str, Correlation]]:
    """Return the planned inputs, with one more column for each link to the outer query, and the links by column name.

    Raises Unreachable if the inputs do not all have the same links to the outer query.
    """
    found: list[Selected] = []
    links: list[list[Correlation]] = []
    for number, part in enumerate(parts):
        path = queries.invent(context.path, "input")
        place = replace(context, path=path, named=context.named and not number)
        inner = in_each_group(queries.select(part, place), place, queries, part)
        if found and len(inner.outputs) != len(found[0].outputs):
            raise Refusal(
                f"the number of columns is {len(found[0].outputs)} in the previous query and "
                f"{len(inner.outputs)} here: select the same columns in the same order",
                part,
            )
        found.append(inner)
        links.append(equal_correlations(inner.links, columns(inner.input).keys()))
    outers = [[(link.outer, link.null_safe) for link in each] for each in links]
    if any(each != outers[0] for each in outers):
        raise beyond([outer for each in outers for outer, _ in each], frozenset())
    names = [f"{_LINK}{number}" for number in range(len(outers[0]))]
    branches = [
        Selected(inner.input, {**inner.outputs, **{name: link.own for name, link in zip(names, own, strict=True)}})
        for inner, own in zip(found, links, strict=True)
    ]
    return branches, dict(zip(names, links[0], strict=True))


def _same(branches: list[Selected], names: list[str], parts: list[exp.Expr]) -> list[LogicalProject]:
    """Return each input with its columns renamed to `names`, and cast to the inputs' common types. Raises Refusal."""
    projects = [LogicalProject(each.input, dict(zip(names, each.outputs.values(), strict=True))) for each in branches]
    types = [columns(project) for project in projects]
    for name in names:
        united = types[0][name]
        for own, part in zip(types[1:], parts[1:], strict=True):
            united = _united(united, own[name], name.rpartition(".")[2], part)
        for number, own in enumerate(types):
            if own[name].required != united.required:
                output = projects[number].outputs[name]
                cast = exp.Cast(this=output.copy(), to=exp.DataType.build(united.required.sql, dialect="spark"))
                outputs = {**projects[number].outputs, name: cast}
                projects[number] = LogicalProject(projects[number].input, outputs)
    return projects


def _united(left: Type, right: Type, name: str, at: exp.Expr) -> Type:
    if left.required == right.required:
        return left
    type_ = common(left, right)
    if type_ is None:
        raise Refusal(
            f"the column {name} has type {left.sql} in the previous query and {right.sql} here: cast one of them",
            at,
        )
    return type_
