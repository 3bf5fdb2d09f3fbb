"""Dead letters of unmatched retractions: the table, the record and the known columns of the row."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.operators.aggregate.partial import PARTIAL, add_up
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.service.execute import calc
from rowkind.service.execute.aggregation import spec_of
from rowkind.service.execute.operators import operator
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.physical.node import PhysicalUnion
from rowkind.service.physical.operators import PhysicalAggregate, PhysicalJoin
from rowkind.service.query.operator_letters import UnmatchedLetters, sides
from tests.queries import (
    BY_KEY,
    CUSTOMERS,
    ORDERS,
    ROW_STATE,
    SPENT,
    by,
    scan,
    select,
)

COUNTED = scan("o", ORDERS, "append", select(ORDERS, key=by(ORDERS, "customer")))
SPENDING = PhysicalAggregate("aggregate_1", COUNTED, SPENT, calc=select(SPENT.output))
ORDER = {"order_id": 7, "customer": 3, "amount": None}


def deleted(record: Any, row: dict[str, Any], seq: int) -> Rows:
    """Return the retraction of one row."""
    columns = {field.name: pa.array([row[field.name]], field.type) for field in record.arrow}
    return Rows(np.array([RowKind.DELETE], np.int8), np.array([seq]), codec.encode(record, columns))


def letter(letters: UnmatchedLetters, lost: Changes) -> DeadLetter:
    """Return the only dead letter."""
    (payload,) = pickle.loads(pickle.dumps(letters))(lost).to_pylist()
    return DeadLetter.from_bytes(payload)


def test_a_row_of_a_table_is_named_with_its_record() -> None:
    """The dead letter of a table's row has the topic, partition and offset, and the table's column names."""
    names = scan("c", CUSTOMERS, "retract", select(CUSTOMERS, key=by(CUSTOMERS, "id"), side=1), "id")
    both = COUNTED.calc.output.concat(CUSTOMERS)
    join = PhysicalJoin("join_1", COUNTED, names, "inner", ROW_STATE, BY_KEY, both, None, calc=select(both))
    lost = calc.run(names.calc, deleted(CUSTOMERS, {"id": 3, "name": "ann"}, seq=(9 << 16) + 2))

    found = letter(UnmatchedLetters(join), lost)

    assert (found.table, found.topic, found.partition, found.offset) == ("customers", "customers", 2, 9)
    assert (found.stage, json.loads(found.value or b"")) == ("join_1", {"id": 3, "name": "ann"})
    assert sides(join) == ("scan_o", "scan_c")


def test_a_row_of_one_of_several_inputs_has_no_origin() -> None:
    """A row of a union has no source record in its dead letter."""
    union = PhysicalUnion(
        "union_1", (COUNTED, replace(COUNTED, node="scan_p", source=replace(COUNTED.source, topic="other")))
    )
    lost = calc.run(COUNTED.calc, deleted(ORDERS, ORDER, seq=1))

    found = letter(UnmatchedLetters(replace(SPENDING, input=union)), lost)

    assert (found.table, found.topic, found.offset) == ("union_1", None, None)
    assert json.loads(found.value or b"") == ORDER


def test_of_rows_that_were_added_up_the_group_is_known() -> None:
    """The unmatched retraction of a pre-aggregated row has the group's columns in its dead letter."""
    sums = add_up(spec_of(SPENT), calc.run(COUNTED.calc, deleted(ORDERS, ORDER, seq=1)))
    aggregate = operator(SPENDING)
    output = aggregate.process(Batch(sums), {name: MemoryStore() for name in aggregate.arrangements}, now=1)
    assert output.unmatched.side.tolist() == [PARTIAL]

    found = letter(UnmatchedLetters(SPENDING), output.unmatched)

    assert json.loads(found.value or b"") == {"customer": 3}
    assert sides(SPENDING)[PARTIAL] == "scan_o"
