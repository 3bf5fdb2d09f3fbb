"""Construction of calcs.

A calc merges the filters, projections and expands above a scan or operator into one step, which also computes the
output key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from rowkind.avro.schema import Field, Record, Type
from rowkind.service.physical.calc import Calc, OnError
from rowkind.service.physical.expression import PLACE, Expand, Expression
from rowkind.service.physical.keys import Key, Salt, SubKeyPart
from rowkind.service.physical.operators import RankCondition
from rowkind.service.plan.columns import by_name, columns
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalFilter, LogicalProject
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.subset import LogicalRank
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.conjuncts import reads, substitute
from rowkind.service.plan.scalar.scalars import Columns, compile_cast, compile_condition, compile_scalar, resolved, show


@dataclass(frozen=True)
class Edge:
    """A consumer's requirements for a node's calc. All names and expressions refer to the node's columns.

    - `types`: the columns to carry, with the types that the consumer expects.
    - `key`: the key expressions, each with the type in which values are compared and whether NULL equals NULL.
    - `sub_key`: the sub-key columns, each with flags for descending order and for NULLs first.
    - `refreshes`: whether the consumer, or an operator downstream of it, has a TTL.
    - `salt`: set if rows with the same key are spread over several shards.
    - `apart`: the number of trailing key parts that do not affect the shard.
    - `arrival`: the column with the rows' arrival numbers, or None if rows keep their existing numbers.
    - `rewrites`: whether a retraction followed by an insertion of an equal row is passed on instead of dropped.
    - `times_deletes`: whether deletes by key carry a time.
    """

    types: Mapping[str, Type]
    key: tuple[tuple[exp.Expr, Type, bool], ...] = ()
    sub_key: tuple[tuple[str, bool, bool], ...] = ()
    drop_null: bool = False
    padded: bool = False
    side: int = 0
    key_record: Record | None = None
    constant: bytes | None = None
    needs_before: bool = True
    refreshes: bool = False
    salt: Salt | None = None
    apart: int = 0
    arrival: str | None = None
    rewrites: bool = False
    times_deletes: bool = False

    @property
    def decisive(self) -> tuple[tuple[exp.Expr, Type], ...]:
        """The key parts that choose the shard, each with its type."""
        return tuple((part, type_) for part, type_, _ in self.key[: len(self.key) - self.apart])


def calc(top: LogicalNode, edge: Edge, input_: Record, below: Columns, record: str) -> Calc:
    """Return the calc of a scan or operator.

    The calc merges all filters, projections and expands up to and including the node `top`.
    """
    conditions, meanings = _merged(top, below)
    keys = tuple(substitute(part, meanings) for part, *_ in edge.key)
    arrival = () if edge.arrival is None else (edge.arrival,)
    carried = [meanings[name] for name in (*edge.types, *(name for name, *_ in edge.sub_key), *arrival)]
    expands, below = _expands(top, below, (*conditions, *keys, *carried))
    output = record_of(record, edge.types)
    parts = tuple(_key_part(part, below, type_, edge) for part, (_, type_, _) in zip(keys, edge.key, strict=True))
    return Calc(
        input=input_,
        output=output.nullable() if edge.padded else output,
        columns=tuple(_output(meanings[name], below, type_) for name, type_ in edge.types.items()),
        key=Key(
            parts,
            tuple(null_safe for *_, null_safe in edge.key),
            edge.drop_null and bool(parts),
            edge.key_record,
            edge.constant,
            edge.salt,
            edge.apart,
        ),
        sub_key=tuple(
            SubKeyPart(compile_scalar(meanings[name], below), descending, nulls_first)
            for name, descending, nulls_first in edge.sub_key
        ),
        predicate=compile_condition(conditions, below),
        side=edge.side,
        nets=True,
        refreshes=edge.refreshes,
        expands=expands,
        arrival=None if edge.arrival is None else compile_scalar(meanings[edge.arrival], below),
    )


def rank_condition(rank: LogicalRank, row: Record, on_error: OnError) -> RankCondition | None:
    """Compile a rank's condition over rows with the record `row`. Return None if the rank has no condition."""
    numbers = record_of("Row", dict.fromkeys(rank.asked, types.INT))
    both = {each.name: (each.name, each.type) for each in row.concat(numbers).fields}
    condition = compile_condition(rank.condition, both)
    if condition is None:
        return None
    return RankCondition(condition, numbers, tuple(rank.asked.values()), rank.bound, on_error)


def _output(value: exp.Expr, below: Columns, type_: Type) -> Expression:
    """Compile an output column.

    If `type_` is NOT NULL because the filters exclude NULL, the compiled column is NOT NULL too.
    """
    found = compile_scalar(value, below)
    return found if type_.nullable or not found.type.nullable else replace(found, type=found.type.required)


def _key_part(part: exp.Expr, below: Columns, type_: Type, edge: Edge) -> Expression:
    plain = compile_scalar(part, below)
    # Equal values of the same type family have equal key bytes. Only decimals and different families need a cast.
    families = types.family(plain.type), types.family(type_)
    if edge.key_record is not None or (families[0] == families[1] and families[0] != "decimal"):
        return plain
    return compile_cast(part, below, type_)


def _expands(node: LogicalNode, below: Columns, asked: Iterable[exp.Expr]) -> tuple[tuple[Expand, ...], Columns]:
    """Return the expands below `node` and the columns that the last expand emits.

    If there is no expand, the columns are those of `below`. `asked` are the expressions that read those columns.
    """
    last = node
    while isinstance(last, LogicalFilter | LogicalProject):
        last = last.input
    if not isinstance(last, LogicalExpand):
        return (), below
    conditions, meanings = _merged(last.input, below)
    read = set[str]().union(*map(reads, (*asked, *last.condition)))
    carried = [name for name in columns(last.input) if name in read]
    made = {name: part for name, part in {last.place: PLACE, **last.elements}.items() if name in read}
    array, sources = substitute(last.array, meanings), [meanings[name] for name in carried]
    earlier, below = _expands(last.input, below, (*conditions, array, *sources))
    types_ = {name: type_ for name, type_ in columns(last).items() if name in {*carried, *made}}
    step = Expand(
        array=compile_scalar(array, below),
        carried=tuple(_output(each, below, types_[name]) for name, each in zip(carried, sources, strict=True)),
        made=tuple(made.values()),
        output=record_of("Row", {name: types_[name] for name in (*carried, *made)}),
        first=last.first,
        inline=last.inline,
        outer=last.outer,
        text=show(last.at),
        predicate=compile_condition(conditions, below),
        condition=compile_condition(last.condition, by_name(types_)),
        finest=last.finest,
    )
    return (*earlier, step), by_name(types_)


def _merged(node: LogicalNode, below: Columns) -> tuple[Sequence[exp.Expr], Mapping[str, exp.Expr]]:
    """Return the conditions and columns of `node`, as expressions over the nearest scan, operator or expand below."""
    match node:
        case LogicalExpand():
            return [], {name: resolved(name) for name in columns(node)}
        case LogicalFilter():
            conditions, meanings = _merged(node.input, below)
            return [*conditions, *(substitute(each, meanings) for each in node.conjuncts)], meanings
        case LogicalProject():
            conditions, meanings = _merged(node.input, below)
            return conditions, {name: substitute(output, meanings) for name, output in node.outputs.items()}
        case _:
            return [], {name: resolved(name) for name in below}


def record_of(name: str, fields: Mapping[str, Type]) -> Record:
    """Return a record with these columns. Nullable columns default to NULL."""
    return Record(
        name, tuple(Field(column, type_, "null" if type_.nullable else None) for column, type_ in fields.items())
    )
