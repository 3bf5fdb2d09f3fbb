"""The shards that changes go to, and the operators that they are addressed to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from rowkind.avro.order import comparable, join_bytes
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Rows, binary
from rowkind.operators.columns.hashing import hash64
from rowkind.service.execute.failures import OnFailure
from rowkind.service.execute.members import MOST_PLACES, SIDES, address, addressed
from rowkind.service.execute.route import deliver, leave, shard_without_key
from rowkind.service.physical.graph import Exit
from rowkind.service.physical.keys import Key
from rowkind.service.physical.node import Traits
from tests.queries import BLOCKED, by, select


def test_what_goes_out_of_an_exit_goes_to_its_shard() -> None:
    """Changes go to the shard of their hash, stay in their shard if partitioned already, or go to all as facts."""
    rows = np.arange(7, dtype=np.int64)
    bytes_ = binary([b"x"] * 7)
    changes = Changes(
        np.ones(7, np.int8), rows.astype(np.int8) * 0, rows.astype(np.uint64), bytes_, bytes_, rows, bytes_
    )
    way = Exit("way", select(BLOCKED, key=by(BLOCKED, "who")), to=9, level=4, stays=False, traits=Traits())
    fact = replace(way, calc=select(BLOCKED, key=Key(constant=b"some")))

    def sent(way: Exit, own: int | None) -> dict[int, list[int]]:
        parts = list(deliver(way, Batch(changes), 3, own))
        assert all((level, set(addressed(part, 9).changes.side.tolist())) == (4, {1}) for _, level, part in parts)
        assert all(len(addressed(part, 9)) == len(part) for _, _, part in parts)
        return {shard: part.changes.seq.tolist() for shard, _, part in parts}

    by_hash = {0: [0, 3, 6], 1: [1, 4], 2: [2, 5]}
    assert sent(way, None) == sent(way, 2) == by_hash
    assert sent(replace(way, stays=True), 2) == {2: rows.tolist()}
    assert sent(replace(way, stays=True), None) == by_hash
    assert sent(fact, None) == sent(fact, 1) == dict.fromkeys(range(3), rows.tolist())


def test_a_truncation_goes_to_every_shard() -> None:
    """A truncation goes to every shard, because each may have rows of the table."""
    way = Exit("way", select(BLOCKED, key=by(BLOCKED, "who")), to=9, level=4, stays=False, traits=Traits())
    batch = leave(way, Emitted(Rows.empty(), truncation=1), OnFailure("t"))
    parts = [(shard, addressed(part, 9)) for shard, _, part in deliver(way, batch, 3) if len(part)]
    assert [(shard, part.truncations, len(part.changes)) for shard, part in parts] == [
        (shard, {0: 1}, 0) for shard in range(3)
    ]


def test_keys_that_are_equal_but_for_parts_kept_apart_are_in_one_shard() -> None:
    """If the last part of a key is kept apart, only the other parts determine the shard."""
    whose = pa.array([number % 5 for number in range(40)], pa.int64())
    times = pa.array(range(40), pa.timestamp("us", "UTC"))
    key = join_bytes([comparable(whose), comparable(times)])
    none, zeros = binary([b""] * 40), np.zeros(40, np.int8)
    changes = Changes(zeros, zeros, hash64(key), key, none, np.arange(40), key)
    way = Exit("way", select(BLOCKED, key=Key(apart=1)), to=1, level=1, stays=False, traits=Traits())
    found = {shard: part.changes.seq for shard, _, part in deliver(way, Batch(changes), 3)}
    alone = hash64(comparable(whose)) % np.uint64(3)
    assert {shard: seq.tolist() for shard, seq in found.items()} == {
        shard: np.flatnonzero(alone == shard).tolist() for shard in range(3)
    }


def test_rows_for_a_sink_without_a_key_are_spread_by_their_content() -> None:
    """Rows for a sink without a key are spread by content, so that a row and its retraction go to the same shard."""
    payload = binary([b"row %d" % (number % 50) for number in range(100)])
    numbers = np.arange(100, dtype=np.int64)
    nothing, same = binary([b""] * 100), np.zeros(100, np.uint64)
    changes = Changes(np.zeros(100, np.int8), np.zeros(100, np.int8), same, nothing, nothing, numbers, payload)
    way = Exit("way", select(BLOCKED), to=1, level=2, stays=True, traits=Traits(), spreads=True)
    parts = {shard: part.changes.payload.to_pylist() for shard, _, part in deliver(way, Batch(changes), 2)}
    assert min(len(part) for part in parts.values()) > 20
    assert not set(parts[0]) & set(parts[1])
    assert [(shard, len(part)) for shard, _, part in deliver(way, Batch(changes), 2, own=1)] == [(1, 100)]


def test_the_empty_key_has_a_shard() -> None:
    """The shard of the empty key is that of its hash."""
    empty = hash64(binary([b""]))[0]
    assert [shard_without_key(shards) for shards in (1, 2, 7)] == [empty % np.uint64(each) for each in (1, 2, 7)]


def test_changes_reach_the_consumer_that_they_are_addressed_to() -> None:
    """Changes are read only by the operator that they are addressed to, with their sides, up to the last place."""
    sides = np.array([0, 1, 2, SIDES - 1], np.int8)
    rows = np.zeros(4, np.int64)
    bytes_ = binary([b""] * 4)
    changes = Changes(sides, rows.astype(np.int8), rows.astype(np.uint64), bytes_, bytes_, rows, bytes_)
    places = [0, 1, 31, 32, 1000, MOST_PLACES - 1]
    for place in places:
        sent = address(Batch(changes), place)
        back = addressed(sent, place).changes
        assert (back.side.tolist(), back.side.dtype) == (sides.tolist(), np.dtype(np.int8))
        assert sum(len(addressed(sent, other)) for other in places if other != place) == 0
