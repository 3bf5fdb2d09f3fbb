"""Operators built from plans, over packed rows: groups and calls of aggregates, numbers and identities of ranks."""

from __future__ import annotations

import math
import pickle
import struct

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Rows
from rowkind.operators.rank.ranking import Ranking
from rowkind.service.execute import calc
from rowkind.service.execute.aggregation import spec_of
from rowkind.service.execute.operators import operator
from rowkind.service.execute.stage import members
from rowkind.service.physical.graph import graph
from rowkind.service.physical.keys import SubKeyPart
from rowkind.service.physical.operators import PhysicalAggregate, PhysicalRank
from tests.queries import (
    ROW_STATE,
    aggregation,
    by,
    call,
    column,
    everything,
    rows_of,
    scan,
    select,
)

READINGS = Record.of({"id": "INT NOT NULL", "at": "DOUBLE", "place": "STRING", "value": "INT"}, "readings")
I, _, UA, D, *_ = RowKind  # noqa: E741 -- the row kinds by their letters


def readings(*rows: tuple[RowKind, int, float | None, str | None, int | None]) -> Rows:
    """Return changes of readings in order of arrival."""
    columns = [pa.array([row[i + 1] for row in rows], field.type) for i, field in enumerate(READINGS.arrow)]
    payload = codec.encode(READINGS, dict(zip(READINGS.names, columns, strict=True)))
    return Rows(np.array([row[0] for row in rows], np.int8), np.arange(len(rows)) << 16, payload)


def test_groups_that_sql_calls_equal_are_one_row() -> None:
    """0.0 and -0.0, and NaNs of any bits, give the same group bytes."""
    group = spec_of(aggregation(READINGS, ("at", "place"), [])).group
    other_nan = struct.unpack("<d", struct.pack("<q", 0x7FF8_0000_0000_0001))[0]
    numbers = [0.0, -0.0, math.nan, -math.nan, other_nan, None, 1.5]
    packed = group(readings(*((I, 1, number, "x", None) for number in numbers)).payload).to_pylist()

    assert packed[0] == packed[1]
    assert packed[2] == packed[3] == packed[4]
    assert len(set(packed)) == 4


def test_several_arguments_are_distinct_together_and_null_where_one_is() -> None:
    """COUNT(DISTINCT a, b) counts pairs without NULL, and retracting one of two equal pairs changes nothing."""
    counted = aggregation(READINGS, (), [call("n", "count", "BIGINT NOT NULL", "place", "value", distinct=True)])
    input_ = scan("r", READINGS, "retract", select(READINGS, nets=True))
    node = PhysicalAggregate("aggregate_1", input_, counted, calc=select(counted.output))
    aggregate = pickle.loads(pickle.dumps(operator(node)))
    stores = {name: MemoryStore() for name in aggregate.arrangements}
    rows = readings(*((I, i, None, place, value) for i, (place, value) in enumerate([
        ("a", 1), ("a", 1), ("a", 2), ("", 1), (None, 1), ("a", None), ("a\0", 1),
    ])))  # fmt: skip

    first = aggregate.process(calc.batch(input_.calc, rows), stores, now=1)
    gone = readings((D, 0, None, "a", 1), (D, 2, None, "a", 2))
    second = aggregate.process(calc.batch(input_.calc, gone), stores, now=2)

    assert rows_of(counted.output, first.rows.payload.to_pylist()) == {(4,): 1}
    kinds = [RowKind(kind) for kind in second.rows.kind.tolist()]
    rest = codec.read(counted.output, second.rows.payload).column("n").to_pylist()
    assert set(zip(kinds, rest, strict=True)) == {(D, 4), (I, 3)}


def test_an_improving_rank_replaces_by_identity_and_numbers_rows() -> None:
    """A row that is replaced with a better value moves up, and the numbers of the rows that it passes change."""
    order = (SubKeyPart(column(READINGS, "value"), descending=True, nulls_first=False),)
    input_ = scan("r", READINGS, "append", select(READINGS, key=by(READINGS, "place"), sub_key=order, nets=False), "id")
    schema = READINGS.concat(Record.of({"number": "INT NOT NULL"}))
    rank = operator(
        PhysicalRank(
            "rank_1",
            input_,
            ROW_STATE,
            Ranking("row_number", 1, 2, strategy="improving"),
            {"number": "row_number"},
            "",
            ("id",),
            ("place",),
            ("value",),
            schema,
            calc=select(schema),
        )
    )
    rank, stores = pickle.loads(pickle.dumps(rank)), {"rows": MemoryStore()}

    def process(now: int, *rows: tuple[RowKind, int, float | None, str | None, int | None]) -> set[tuple[object, ...]]:
        output = rank.process(calc.batch(input_.calc, readings(*rows)), stores, now)
        found = codec.read(schema, output.rows.payload)
        return set(
            zip(
                output.rows.kind.tolist(),
                *(found.column(name).to_pylist() for name in ("id", "value", "number")),
                strict=True,
            )
        )

    assert process(1, (I, 1, None, "x", 10), (I, 2, None, "x", 20), (I, 3, None, "x", 5)) == {
        (I, 2, 20, 1),
        (I, 1, 10, 2),
    }
    assert process(2, (UA, 1, None, "x", 30)) == {(D, 2, 20, 1), (D, 1, 10, 2), (I, 1, 30, 1), (I, 2, 20, 2)}


def test_no_two_arrangements_have_one_name() -> None:
    """All operators of a graph have different arrangement names, and a one-sided join becomes a SemiJoin."""
    whole = graph([everything()])
    stage = members(whole, 1)
    found = [state for member in stage for state in member.arrangements.values()]
    assert len(found) == len(set(found)) > len(stage)
    kinds = {member.node: type(member.operator).__name__ for member in stage}
    assert kinds["join_2"] == kinds["join_3"] == "SemiJoin"
    assert (kinds["aggregate_1"], kinds["rank_1"], kinds["normalize_1"]) == ("Aggregate", "Rank", "Normalize")
