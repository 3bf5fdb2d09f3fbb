"""The logical plan: what the query means, as a tree of frozen nodes that passes rewrite.

Every relation in the query has a path of aliases, such as `o` or `x.o` inside of the derived table `x`, and every
column of the plan a name that is unique in it: the path and the column, `o.order_id`. Expressions are sqlglot's, over
columns by these names (`scalars.resolved`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from avro.schema import Record, Type
from service.job.model import Job
from service.job.model import Sink as JobSink
from service.plan.physical import ChangelogMode, JoinKind, Layout, RowKindHeader, Start
from service.plan.scalars import Columns, compile_scalar, resolved


@dataclass(frozen=True)
class Source:
    """A table of the job as the plan sees it.

    `declared` has the primary key NOT NULL, and the rest of an upsert table nullable: a delete brings the key alone.
    """

    table: str
    topic: str
    mode: ChangelogMode
    declared: Record
    primary_key: tuple[str, ...]
    ttl_ms: int | None
    row_kind: RowKindHeader
    start: Start

    @property
    def replaces(self) -> bool:
        """Whether a change may replace a row by the primary key without taking it back first."""
        return bool(self.primary_key) and self.mode != "append"


@dataclass(frozen=True)
class Scan:
    """One use of a table under an alias. `used` are the columns somebody reads, all until they are pruned."""

    path: str
    source: Source
    used: tuple[str, ...]
    at: exp.Expr

    def name(self, column: str) -> str:
        """What a column of the table is called in the plan."""
        return f"{self.path}.{column}"


@dataclass(frozen=True)
class Filter:
    """The rows for which all conjuncts are true."""

    input: Node
    conjuncts: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class Project:
    """One column per output, by name."""

    input: Node
    outputs: Mapping[str, exp.Expr]


@dataclass(frozen=True)
class EqualKey:
    """One `left = right` of a join, compared as `type`; `null_safe` for IS NOT DISTINCT FROM."""

    left: exp.Expr
    right: exp.Expr
    type: Type
    null_safe: bool


@dataclass(frozen=True)
class Side:
    """One input of a join and what the plan chose for it.

    `carried` are the columns that the join's rows or its condition need; `sub` the columns of the sub-key.
    """

    input: Node
    carried: tuple[str, ...] = ()
    layout: Layout = "multiset"
    sub: tuple[str, ...] = ()
    ttl_ms: int | None = None


@dataclass(frozen=True)
class Join:
    """Pairs of rows that agree in all keys and fulfil the condition, and pads. `at` is the JOIN in the SQL."""

    kind: JoinKind
    left: Side
    right: Side
    condition: tuple[exp.Expr, ...]
    at: exp.Expr
    keys: tuple[EqualKey, ...] = ()

    @property
    def sides(self) -> tuple[Side, Side]:
        """Left and right."""
        return self.left, self.right

    @property
    def pads_left(self) -> bool:
        """Whether left rows without a match appear, the right side's columns NULL."""
        return self.kind in ("left", "full")

    @property
    def pads_right(self) -> bool:
        """Whether right rows without a match appear, the left side's columns NULL."""
        return self.kind in ("right", "full")


Node = Scan | Filter | Project | Join


@dataclass(frozen=True)
class TtlHint:
    """One entry of a STATE_TTL hint, and where it stands."""

    ttl_ms: int
    at: exp.Expr


@dataclass(frozen=True)
class Query:
    """What the passes hand on: the tree, whose root is the SELECT list, where it comes from and where it goes.

    `ttl_hints` are the STATE_TTL hints of the query by alias.
    """

    job: Job
    name: str
    sink: JobSink
    root: Node
    ttl_hints: Mapping[str, TtlHint]
    select: exp.Expr

    @property
    def outputs(self) -> Mapping[str, exp.Expr]:
        """The SELECT list: what defines each column of the result."""
        assert isinstance(self.root, Project), "the root is the SELECT list"
        return self.root.outputs


def inputs(node: Node) -> tuple[Node, ...]:
    """The nodes right below."""
    match node:
        case Scan():
            return ()
        case Join():
            return node.left.input, node.right.input
        case _:
            return (node.input,)


def with_inputs(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node over changed inputs."""
    match node:
        case Scan():
            return node
        case Join():
            left = replace(node.left, input=change(node.left.input))
            return replace(node, left=left, right=replace(node.right, input=change(node.right.input)))
        case _:
            return replace(node, input=change(node.input))


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, inputs first, left before right."""
    for child in inputs(node):
        yield from walk(child)
    yield node


def columns(node: Node) -> dict[str, Type]:
    """The columns that a node puts out and their types."""
    match node:
        case Scan():
            return {node.name(column): node.source.declared.type(column) for column in node.source.declared.names}
        case Filter():
            return columns(node.input)
        case Project():
            below = by_name(columns(node.input))
            return {name: compile_scalar(output, below).type for name, output in node.outputs.items()}
        case Join():
            left, right = columns(node.left.input), columns(node.right.input)
            if node.pads_right:
                left = {name: type_.as_nullable() for name, type_ in left.items()}
            if node.pads_left:
                right = {name: type_.as_nullable() for name, type_ in right.items()}
            return left | right


def by_name(types: Mapping[str, Type]) -> Columns:
    """Columns as `scalars` wants them, called what they are called in the plan."""
    return {name: (name, type_) for name, type_ in types.items()}


def reads(node: exp.Expr) -> set[str]:
    """The columns that an expression reads."""
    return {column.name for column in node.find_all(exp.Column)}


def substitute(node: exp.Expr, definitions: Mapping[str, exp.Expr]) -> exp.Expr:
    """The expression with columns replaced by what defines them."""

    def define(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column) and each.name in definitions:
            definition = definitions[each.name]
            if isinstance(definition, exp.Column):
                return resolved(definition.name, like=each)
            return exp.Paren(this=definition.copy())
        return each

    return node.transform(define)


def conjuncts(node: exp.Expr | None) -> tuple[exp.Expr, ...]:
    """A condition as the parts that AND holds together, those that are simply TRUE left out."""
    if node is None:
        return ()
    parts = node.flatten() if isinstance(node, exp.And) else [node]
    found: list[exp.Expr] = []
    for part in parts:
        bare = part.unnest()
        if isinstance(bare, exp.And):
            found += conjuncts(bare)
        elif not (isinstance(bare, exp.Boolean) and bare.this):
            found.append(bare)
    return tuple(found)
