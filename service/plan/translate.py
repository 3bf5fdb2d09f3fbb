"""The logical plan as a physical one.

Filters and projections are merged into the calc of the node below them, names of the plan become records of edges,
expressions become DuckDB SQL, and there is an exchange where the partitioning changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from sqlglot import exp

from avro.schema import Field, Record, Type
from service.plan import physical, types
from service.plan.changelog_modes import base, produced
from service.plan.logical import Filter, Join, Node, Project, Query, Scan, Side, columns, reads, substitute
from service.plan.scalars import Columns, compile_cast, compile_condition, compile_scalar, resolved, show
from service.plan.unique_keys import in_order, key_columns, unique_keys


def translate(query: Query) -> physical.Sink:
    """The physical plan. Raises Refusal for an expression that cannot be translated."""
    sink = query.sink
    key_record = None
    edge = _Edge(tuple(query.outputs), needs_before=sink.mode != "upsert")
    if sink.key:
        result = columns(query.root)
        key_record = _record(f"{_identifier(query.name)}_key", {name: result[name] for name in sink.key})
        edge = _Edge(
            tuple(query.outputs),
            key=tuple((resolved(name), result[name], True) for name in sink.key),
            key_record=key_record,
            needs_before=sink.mode != "upsert",
        )
    node = _Translator(count(1)).node(query.root, edge, _identifier(query.name))
    return physical.Sink(
        name=query.name,
        topic=sink.topic,
        mode=sink.mode,
        input=node,
        key=sink.key,
        value=node.calc.output,
        key_record=key_record,
        exchange=bool(sink.key) and sink.mode != "append" and not _partitioned_by(query, set(sink.key)),
        row_kind=sink.row_kind.physical(),
        delivery=sink.delivery,
    )


@dataclass(frozen=True)
class _Edge:
    """What the consumer of a node asks of the node's calc; all names and expressions are over the node's columns.

    `key` holds expressions, the type that each is compared as, and whether NULL equals NULL in it.
    """

    carried: tuple[str, ...]
    key: tuple[tuple[exp.Expr, Type, bool], ...] = ()
    sub: tuple[str, ...] = ()
    drop_null: bool = False
    padded: bool = False
    side: int = 0
    key_record: Record | None = None
    needs_before: bool = True


class _Translator:
    """One walk over the tree; joins are numbered from the inputs up."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers

    def node(self, node: Node, edge: _Edge, record: str) -> physical.Node:
        below = base(node)
        return (
            self._scan(below, node, edge, record) if isinstance(below, Scan) else self._join(below, node, edge, record)
        )

    def _scan(self, scan: Scan, top: Node, edge: _Edge, record: str) -> physical.Scan:
        source = scan.source
        input_ = source.declared.select(scan.used)
        below = {scan.name(name): (name, source.declared.type(name)) for name in scan.used}
        return physical.Scan(
            node=f"scan_{scan.path}",
            table=source.table,
            topic=source.topic,
            mode=source.mode,
            declared=source.declared,
            primary_key=source.primary_key,
            calc=_calc(top, edge, input_, below, record, upsert=source.mode == "upsert", nets=not source.replaces),
            key_record=source.declared.select(source.primary_key) if source.mode == "upsert" else None,
            row_kind=source.row_kind,
            start=source.start,
            alias=scan.path,
            traits=_traits(top, (), edge.needs_before),
        )

    def _join(self, join: Join, top: Node, edge: _Edge, record: str) -> physical.Join:
        left = self._side(join, join.left, 0)
        right = self._side(join, join.right, 1)
        name = f"join_{next(self._numbers)}"
        schema = left.calc.output.concat(right.calc.output)
        below = {field.name: (field.name, field.type) for field in schema.fields}
        return physical.Join(
            node=name,
            kind=join.kind,
            left=left,
            right=right,
            left_input=_input(join.left),
            right_input=_input(join.right),
            schema=schema,
            condition=compile_condition(join.condition, below),
            calc=_calc(top, edge, schema, below, record, upsert=False, nets=True),
            traits=_traits(top, _partition_key(join), edge.needs_before),
        )

    def _side(self, join: Join, side: Side, number: int) -> physical.Node:
        keys = tuple((key.left if number == 0 else key.right, key.type, key.null_safe) for key in join.keys)
        preserved = join.pads_left if number == 0 else join.pads_right
        edge = _Edge(
            carried=side.carried,
            key=keys,
            sub=side.sub,
            drop_null=not preserved,
            padded=join.pads_right if number == 0 else join.pads_left,
            side=number,
            needs_before=not (_replaces(side) and _stable(join, side)),
        )
        return self.node(side.input, edge, "Row")


def _calc(
    top: Node, edge: _Edge, input_: Record, below: Columns, record: str, *, upsert: bool, nets: bool
) -> physical.Calc:
    """The calc of a scan or operator whose filters and projections reach up to `top`."""
    conditions, meanings = _merged(top, below)

    def meaning(expression: exp.Expr) -> exp.Expr:
        return substitute(expression, meanings)

    outputs = {name: compile_scalar(meanings[name], below) for name in edge.carried}
    output = _record(record, {name: output.type for name, output in outputs.items()})
    parts = tuple(_key_part(meaning(part), below, type_, edge) for part, type_, _ in edge.key)
    return physical.Calc(
        input=input_,
        output=output.nullable() if edge.padded else output,
        columns=tuple(outputs.values()),
        key=physical.Key(
            parts, tuple(null_safe for *_, null_safe in edge.key), edge.drop_null and bool(parts), edge.key_record
        ),
        sub=tuple(physical.Order(compile_scalar(meanings[name], below)) for name in edge.sub),
        predicate=compile_condition(conditions, below),
        side=edge.side,
        upsert=upsert,
        nets=nets,
    )


def _key_part(part: exp.Expr, below: Columns, type_: Type, edge: _Edge) -> physical.Expression:
    plain = compile_scalar(part, below)
    # Key bytes widen by themselves, except where values of two types have to become the same ones first.
    families = types.family(plain.type), types.family(type_)
    if edge.key_record is not None or (families[0] == families[1] and families[0] != "decimal"):
        return plain
    return compile_cast(part, below, type_)


def _merged(node: Node, below: Columns) -> tuple[Sequence[exp.Expr], Mapping[str, exp.Expr]]:
    """The conditions above a scan or operator and what the columns on top mean, both in terms of the columns below."""
    match node:
        case Filter():
            conditions, meanings = _merged(node.input, below)
            return [*conditions, *(substitute(each, meanings) for each in node.conjuncts)], meanings
        case Project():
            conditions, meanings = _merged(node.input, below)
            return conditions, {name: substitute(output, meanings) for name, output in node.outputs.items()}
        case _:
            return [], {name: resolved(name) for name in below}


def _record(name: str, fields: Mapping[str, Type]) -> Record:
    return Record(
        name, tuple(Field(column, type_, "null" if type_.nullable else None) for column, type_ in fields.items())
    )


def _identifier(name: str) -> str:
    """A sink's name as the name of an Avro record."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return plain if not plain[0].isdigit() else f"_{plain}"


def _input(side: Side) -> physical.Input:
    return physical.Input(side.layout, side.ttl_ms, by_seq=_replaces(side))


def _replaces(side: Side) -> bool:
    scan = base(side.input)
    return isinstance(scan, Scan) and scan.source.replaces


def _stable(join: Join, side: Side) -> bool:
    """Whether no update of a row moves it to another key of the join."""
    unique = frozenset[str]().union(*unique_keys(side.input))
    return all(reads(key.left if side is join.left else key.right) <= unique for key in join.keys)


def _traits(node: Node, partition_key: tuple[str, ...], needs_before: bool) -> physical.Traits:
    keys = in_order(unique_keys(node), node)
    return physical.Traits(produced(node), keys, keys[0] if keys else (), partition_key, needs_before)


def _partition_key(join: Join) -> tuple[str, ...]:
    return tuple(show(key.left if join.kind != "right" else key.right) for key in join.keys)


def _partitioned_by(query: Query, key: set[str]) -> bool:
    """Whether rows that share the sink's key are already in one shard."""
    join = base(query.root)
    if isinstance(join, Scan):
        return False
    if not join.keys:
        return True
    selected = {output.unnest().name for name, output in query.outputs.items() if name in key}
    below = columns(join.left.input) | columns(join.right.input)

    def decides(own: exp.Expr, side: Side) -> bool:
        # Rows whose key is NULL are spread by their content, so equal sink keys may be anywhere.
        name = own.unnest().name if isinstance(own.unnest(), exp.Column) else ""
        return name in selected & key_columns(join, side) and (join.kind == "inner" or not below[name].nullable)

    return all(
        (join.kind in ("inner", "left") and decides(each.left, join.left))
        or (join.kind in ("inner", "right") and decides(each.right, join.right))
        for each in join.keys
    )
