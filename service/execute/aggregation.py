"""Conversion of a plan's aggregation to the aggregate operator's spec, which reads and writes packed rows.

The operator and the first step in the preceding calc share the spec, so that both read and write the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.aggregate.accumulators import AccumulatorCall
from rowkind.operators.aggregate.function import GATHERED
from rowkind.operators.aggregate.spec import AggregateSpec
from rowkind.operators.columns.changes import constant
from rowkind.operators.columns.value_bytes import canonical
from rowkind.service.execute.aggregate_arguments import Argument, Entry, OneColumn, Ranked, argument_of, whole_type
from rowkind.service.execute.column_times import TimeOf, until
from rowkind.service.execute.gathering import Gathering
from rowkind.service.physical.aggregation import Aggregation, PhysicalAggregateCall
from rowkind.service.python.aggregate import PythonAggregate
from rowkind.service.python.function import PythonFunction


@lru_cache(maxsize=64)
def spec_of(aggregation: Aggregation) -> AggregateSpec:
    """Return the picklable spec for the aggregate operator and for `operators.aggregate.partial.partial`."""
    record, ending = aggregation.input, aggregation.ending
    arguments = {call.name: argument for call in aggregation.calls if (argument := argument_of(call, record))}
    read = {argument.name: argument for argument in arguments.values()}
    filters = {call.filter: OneColumn(call.filter, pa.bool_()) for call in aggregation.calls if call.filter is not None}
    results = aggregation.output.select(call.name for call in aggregation.calls)
    return AggregateSpec(
        calls=tuple(_call(call, arguments.get(call.name), record) for call in aggregation.calls),
        arguments=Arguments(record, tuple((read | filters).values())),
        group=Group(record, aggregation.output.select(aggregation.group)),
        result=ResultPacking(results, tuple(_reader(call, arguments.get(call.name)) for call in aggregation.calls)),
        retracts=aggregation.retracts,
        is_global=aggregation.is_global,
        ttl_ms=aggregation.ttl_ms,
        until=until(aggregation.output.select(aggregation.group), aggregation.closing),
        ends=None if ending is None else TimeOf(aggregation.output, ending.at),
    )


@dataclass(frozen=True)
class Arguments:
    """Reads the arguments and filters of all calls from packed rows of `record`."""

    record: Record
    each: tuple[Argument, ...]

    def __call__(self, payloads: pa.BinaryArray) -> Mapping[str, pa.Array]:
        """Return the arguments, keyed by the names by which the operator's calls refer to them."""
        rows = codec.read(self.record, payloads)
        return {argument.name: argument.of(rows) for argument in self.each}


@dataclass(frozen=True)
class Group:
    """Packs the group columns of rows of `record` as rows of `group`. Values that are equal in SQL have equal bytes."""

    record: Record
    group: Record

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """Return the packed group columns of each row."""
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
    """Packs the results of the calls as rows of `record`. If a result consists of bytes, a reader decodes it first."""

    record: Record
    readers: tuple[Ranked | Entry | None, ...]

    def __call__(self, columns: Sequence[pa.Array]) -> pa.BinaryArray:
        """Return each group's packed results, given one column per call."""
        pairs = zip(columns, self.readers, strict=True)
        values = [column if reader is None else reader.value(column) for column, reader in pairs]
        return codec.encode(self.record, dict(zip(self.record.names, values, strict=True)))


def _call(call: PhysicalAggregateCall, argument: Argument | None, record: Record) -> AccumulatorCall:
    if isinstance(call.function, PythonFunction):
        assert argument is not None, "a function of the job has an argument"
        custom = PythonAggregate(call.function)
        return AccumulatorCall("custom", call.type.arrow, argument.name, filter=call.filter, custom=custom)
    types = call.types or tuple(record.type(name) for name in call.arguments)
    stands = call.stage in ("whole", "first")
    own = None if argument is None else argument.type if stands else whole_type(call, types)
    reads_bytes = call.stage in ("first", "between") or isinstance(argument, Ranked | Entry)
    return AccumulatorCall(
        function=call.function,
        type=pa.binary() if reads_bytes else call.type.arrow,
        argument=None if argument is None else argument.name,
        argument_type=own,
        filter=call.filter,
        distinct=call.distinct,
        grows=call.grows,
        gather=Gathering(argument.record, call) if isinstance(argument, Entry) and call.function in GATHERED else None,
        stage=call.stage,
    )


def _reader(call: PhysicalAggregateCall, argument: Argument | None) -> Ranked | Entry | None:
    """Return the function that decodes a call's result from bytes, or None if the result is not bytes."""
    if isinstance(argument, Ranked):
        return argument
    return argument if isinstance(argument, Entry) and call.function not in GATHERED else None
