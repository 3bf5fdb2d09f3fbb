"""An aggregation of the plan as the operator's spec: what it needs to know of packed rows.

The operator and the partial step of the calc that leads to it share the spec, so both read and write the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro import codec
from rowkind.avro.order import comparable, join_bytes
from rowkind.avro.schema import Record
from rowkind.operators.accumulators import AccumulatorCall
from rowkind.operators.aggregate_spec import AggregateSpec
from rowkind.operators.columns.changes import constant
from rowkind.operators.columns.value_bytes import canonical
from rowkind.service.physical import AggregateCall, Aggregation
from rowkind.service.python.aggregate import PythonAggregate
from rowkind.service.python.function import PythonFunction


@lru_cache(maxsize=64)
def spec_of(aggregation: Aggregation) -> AggregateSpec:
    """What the aggregate operator and `operators.partial_aggregate.partial` run by; it pickles."""
    names = dict.fromkeys(each for call in aggregation.calls for each in _reads(call))
    return AggregateSpec(
        calls=tuple(_call(call, aggregation.input) for call in aggregation.calls),
        arguments=Arguments(aggregation.input, tuple(names)),
        group=Group(aggregation.input, aggregation.output.select(aggregation.group)),
        result=ResultPacking(aggregation.output.select(call.name for call in aggregation.calls)),
        retracts=aggregation.retracts,
        is_global=aggregation.is_global,
        ttl_ms=aggregation.ttl_ms,
    )


@dataclass(frozen=True)
class Structs:
    """Several columns as one of structs, NULL where one of them is unless that is to be seen too."""

    names: tuple[str, ...]
    with_nulls: bool

    def of(self, columns: Sequence[pa.Array]) -> pa.StructArray:
        """The columns as one."""
        there = np.ones(len(columns[0]), np.bool_)
        for column in columns:
            if column.null_count and not self.with_nulls:
                there &= column.is_valid().to_numpy(zero_copy_only=False)
        fields = [f"{number}" for number in range(len(columns))]
        return pa.StructArray.from_arrays(list(columns), fields, mask=None if there.all() else pa.array(~there))


Argument = str | tuple[str, ...] | Structs


@dataclass(frozen=True)
class Arguments:
    """The columns that calls name, of packed rows of `record`; several columns packed into one are a tuple here."""

    record: Record
    names: tuple[Argument, ...]

    def __call__(self, payloads: pa.BinaryArray) -> Mapping[str, pa.Array]:
        """Each column under the name by which the operator's calls ask for it."""
        rows = codec.read(self.record, payloads)
        return {_name(each): _column(each, rows) for each in self.names}


@dataclass(frozen=True)
class Group:
    """The group columns of packed rows of `record`, packed as `group`: in equal bytes where SQL says they are equal."""

    record: Record
    group: Record

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """The packed group columns of each row."""
        if not self.group.fields:
            return constant(b"", len(payloads))
        rows = codec.read(self.record, payloads)
        return rows.assemble(
            self.group,
            [
                canonical(rows.column(field.name)) if pa.types.is_floating(field.type.arrow) else field.name
                for field in self.group.fields
            ],
        )


@dataclass(frozen=True)
class ResultPacking:
    """The results of the calls, packed as the fields of `record`."""

    record: Record

    def __call__(self, columns: Sequence[pa.Array]) -> pa.BinaryArray:
        """The packed results of each group, from a column per call."""
        return codec.encode(self.record, dict(zip(self.record.names, columns, strict=True)))


def _call(call: AggregateCall, record: Record) -> AccumulatorCall:
    argument, own = _argument(call), call.function
    type_ = None
    if argument is not None:
        type_ = record.type(argument).arrow if isinstance(argument, str) else pa.binary()
    if isinstance(own, PythonFunction):
        assert argument is not None, "a function of a job has an argument"
        custom = PythonAggregate(own)
        return AccumulatorCall("custom", call.type.arrow, _name(argument), filter=call.filter, custom=custom)
    return AccumulatorCall(
        function=own,
        type=call.type.arrow,
        argument=None if argument is None else _name(argument),
        argument_type=type_,
        filter=call.filter,
        distinct=call.distinct,
    )


def _argument(call: AggregateCall) -> Argument | None:
    if isinstance(call.function, PythonFunction):
        return Structs(call.arguments, call.function.called_on_null)
    if len(call.arguments) > 1:
        return call.arguments
    return call.arguments[0] if call.arguments else None


def _reads(call: AggregateCall) -> list[Argument]:
    return [each for each in (_argument(call), call.filter) if each is not None]


def _name(argument: Argument) -> str:
    match argument:
        case str():
            return argument
        case Structs():
            return "\0".join(("struct", str(argument.with_nulls), *argument.names))
        case _:
            return "\0".join(argument)


def _column(argument: Argument, rows: codec.Decoded) -> pa.Array:
    match argument:
        case str():
            return rows.column(argument)
        case Structs():
            return argument.of([rows.column(name) for name in argument.names])
        case _:
            return _packed([rows.column(name) for name in argument])


def _packed(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """Several columns as one, equal where all are; NULL where one of them is, as COUNT(DISTINCT a, b) has it."""
    there = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        if column.null_count:
            there &= column.is_valid().to_numpy(zero_copy_only=False)
    packed = join_bytes([comparable(column) for column in columns])
    return packed if there.all() else pc.if_else(pa.array(there), packed, pa.scalar(None, pa.binary()))
