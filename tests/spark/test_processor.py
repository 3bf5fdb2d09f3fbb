"""The processor without a query: what goes in, what comes out, and what rides along."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.arrangement.store import MANIFEST, BlobStore
from rowkind.operators.columns.changes import Block, Changes, RowKind, Rows, binary
from rowkind.operators.operator import Output
from rowkind.service.execute import calc
from rowkind.service.execute.blocks import cut
from rowkind.service.execute.members import Member, Wrap, address
from rowkind.service.execute.operators import operator
from rowkind.service.execute.route import Route
from rowkind.service.metrics import sample
from rowkind.service.physical import PhysicalJoin, PhysicalNode, PhysicalNormalize, PhysicalScan
from rowkind.service.run.json_rows import decode
from rowkind.service.run.memory import pruned
from rowkind.service.spark.cache import CacheLimits
from rowkind.service.spark.errors import UnmatchedRetractionError
from rowkind.service.spark.placement import placement
from rowkind.service.spark.processor import OperatorProcessor
from tests.clocked import Clocked, Line, job_of
from tests.spark.distinct import Distinct, by_payload, changes
from tests.spark.running import alone, fold

ROWS_IN = sample("rowkind_operator_rows_in_total", operator="distinct", kind="+I")
ROWS_OUT = sample("rowkind_operator_rows_out_total", operator="distinct", kind="+I")
UNMATCHED = sample("rowkind_unmatched_retractions_total", operator="distinct")
DEAD = changes(("!", "dead letter"))


def letters(lost: Changes) -> pa.BinaryArray:
    """The dead letter of a payload is the payload in brackets."""
    return binary(b"[" + payload + b"]" for payload in lost.payload.to_pylist())


class Running:
    """A processor over Spark's in-memory double of its state; of one operator if no members are given."""

    def __init__(
        self,
        labels: Sequence[int] = (0,),
        *,
        members: Sequence[Member] = (),
        shards: int = 1,
        wrap: Wrap | None = None,
        **options: Any,
    ) -> None:
        given = members or [Member("distinct", Distinct(), by_payload, wrap=wrap)]
        processor = OperatorProcessor(given, shards=shards, labels=labels, limits=CacheLimits(0, 0), **options)
        self._tester = TwsTester(pickle.loads(pickle.dumps(processor)))

    def batch(self, *blocks: Block, label: int = 0, now: int = 1000) -> list[tuple[int, Block]]:
        """The blocks that a batch of one shard gives at time `now`, in ms."""
        rows = [Row(shard=label, block=block.to_bytes(), now=now) for block in blocks]
        return [(row.shard, Block.from_bytes(row.block)) for row in self._tester.test(label, rows)]


def test_blocks_of_a_shard_are_one_batch() -> None:
    """Rows that come and go in different blocks of one batch are netted by the operator."""
    running = Running()
    out = running.batch(Block(changes(("+I", "a"), ("+I", "b"))), Block(changes(("-D", "a"), start=2)))
    assert fold([block.changes for _, block in out]) == {b"b": 1}
    out = running.batch(Block(changes(("-D", "b"))))
    assert [block.changes.kind.tolist() for _, block in out] == [[RowKind.DELETE]]


def test_output_goes_to_the_label_of_its_shard() -> None:
    """Each change leaves in a block for the consumer's shard that its hash names."""
    labels = placement(5, 2)
    out = Running(labels).batch(Block(changes(*(("+I", f"row {i}") for i in range(100)))))
    assert {label for label, _ in out} == set(labels)
    for label, block in out:
        assert set((block.changes.hash % np.uint64(5)).tolist()) == {label % 5}
    assert sum(len(block.changes) for _, block in out) == 100


def test_counters_ride_on_once() -> None:
    """Counters of all blocks add up in a single block of the output, with the operator's own."""
    one, two = Block(changes(("+I", "a")), {"x_total": 1}), Block(changes(("+I", "b"), start=1), {"x_total": 2, "y": 5})
    out = Running(placement(4, 2)).batch(one, two)
    carried = [block.counters for _, block in out if block.counters]
    assert len(carried) == 1
    assert carried[0]["x_total"] == 3
    assert carried[0]["y"] == 5
    assert carried[0][ROWS_IN] == 2
    assert carried[0][ROWS_OUT] == 2
    assert carried[0][UNMATCHED] == 0


def test_counters_ride_on_without_changes() -> None:
    """A batch that emits no rows still emits its counters, in an empty block."""
    running = Running(placement(3, 2), shards=3)
    running.batch(Block(changes(("+I", "a"))))
    [(label, block)] = running.batch(Block(changes(("+I", "a")), {"x_total": 7}))
    assert label in placement(3, 2)
    assert len(block.changes) == 0
    assert block.counters["x_total"] == 7
    assert block.counters[ROWS_IN] == 1
    assert ROWS_OUT not in block.counters


def test_a_block_of_counters_alone_does_not_touch_the_operator() -> None:
    """Counters that come without changes go on, and the operator counts nothing."""
    [(_, block)] = Running().batch(Block(Changes.empty(), {"x_total": 7}))
    assert block.counters == {"x_total": 7}


def test_state_gauges_name_the_shard() -> None:
    """The size of state is told per shard, by its number and not by its label."""
    labels = placement(3, 2)
    for shard, label in enumerate(labels):
        [(_, block)] = Running(shards=3).batch(Block(changes(("+I", "a"), ("+I", "b"))), label=label)
        assert block.counters[sample("rowkind_state_rows", operator="distinct", shard=shard)] == 2
        assert block.counters[sample("rowkind_state_runs", operator="distinct", shard=shard)] == 1


def test_dead_letters_pass_untouched() -> None:
    """A dead letter among the changes reaches neither operator nor counters, and leaves with the output."""
    [(_, block)] = Running().batch(Block(Changes.concat([DEAD, changes(("+I", "a"))])))
    assert sorted(zip(block.changes.kind.tolist(), block.changes.payload.to_pylist(), strict=True)) == [
        (RowKind.INSERT, b"a"),
        (RowKind.DEAD_LETTER, b"dead letter"),
    ]
    assert block.counters[ROWS_IN] == 1
    assert block.counters[ROWS_OUT] == 1


def test_dead_letters_pass_alone() -> None:
    """A batch of dead letters only goes through without the operator."""
    [(_, block)] = Running().batch(Block(DEAD))
    assert block.changes.payload.to_pylist() == [b"dead letter"]
    assert not block.counters


@pytest.mark.parametrize("policy", ["ignore", "dead_letter"])
def test_unmatched_retractions_are_counted(policy: Literal["ignore", "dead_letter"]) -> None:
    """A retraction that finds no row is counted under either lenient policy and changes no state."""
    running = Running(unmatched=policy, wrap=letters)
    [(_, block)] = running.batch(Block(changes(("-D", "never there"), ("+I", "a"))))
    assert block.counters[UNMATCHED] == 1
    [(_, block)] = running.batch(Block(changes(("+I", "never there"))))
    assert block.changes.payload.to_pylist() == [b"never there"]


def test_unmatched_retractions_become_dead_letters() -> None:
    """With that policy, each lost retraction leaves as a dead letter that the given function makes."""
    [(_, block)] = Running(unmatched="dead_letter", wrap=letters).batch(Block(changes(("-D", "lost"))))
    assert block.changes.kind.tolist() == [RowKind.DEAD_LETTER]
    assert block.changes.payload.to_pylist() == [b"[lost]"]


def test_unmatched_retractions_fail() -> None:
    """With that policy, the message says which operator, which record, and what to do."""
    lost = changes(("+I", "a"), ("-D", "lost"), start=(7 << 16) + 1)
    with pytest.raises(UnmatchedRetractionError, match=r"distinct: 1 retraction.*offset 7 of partition 2.*unmatched"):
        Running(unmatched="fail").batch(Block(lost))


@dataclass(frozen=True)
class Counting:
    """Emits, of every batch, how many changes of each side it has had."""

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The counts so far."""
        return {"rows": None}

    def process(self, changes: Changes, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Count them in."""
        assert now > 0
        before = stores["rows"].get(MANIFEST)
        counts = Counter(pickle.loads(before) if before else {})
        counts.update(changes.side.tolist())
        stores["rows"].put(MANIFEST, pa.py_buffer(pickle.dumps(counts)))
        text = " ".join(f"{side}:{count}" for side, count in sorted(counts.items()))
        rows = Rows(np.array([0], np.int8), np.array([0]), binary([text.encode()]))
        return Output(rows, changes.filter(changes.weight < 0), StateSize(len(counts)))


def on_side_1(rows: Rows) -> Changes:
    """A calc that leads to the right side of its consumer."""
    return replace(by_payload(rows), side=np.ones(len(rows), np.int8))


FUSED = [
    Member("below", Distinct(), on_side_1, feeds=1, wrap=letters),
    Member("above", Counting(), by_payload, sides=("orders", "below"), always_runs=True, wrap=letters),
]


def test_members_hand_their_changes_on_in_memory() -> None:
    """What comes from outside reaches the member it is addressed to; what one emits, the member it feeds."""
    running = Running(members=FUSED)
    for_below = changes(("+I", "a"), ("+I", "a"), ("+I", "b"))
    for_above = address(changes(("+I", "c"), ("+I", "d")), 1)
    [(_, block)] = running.batch(Block(Changes.concat([for_above, for_below])))
    assert block.changes.payload.to_pylist() == [b"0:2 1:2"]
    [(_, block)] = running.batch(Block(changes(("-D", "a"), ("-D", "b"), start=9)))
    assert block.changes.payload.to_pylist() == [b"0:2 1:3"]
    assert block.counters[sample("rowkind_operator_rows_in_total", operator="below", kind="-D")] == 2
    assert block.counters[sample("rowkind_operator_rows_in_total", operator="above", kind="-D")] == 1
    assert block.counters[sample("rowkind_state_rows", operator="below", shard=0)] == 1
    assert block.counters[sample("rowkind_state_rows", operator="above", shard=0)] == 2


def test_a_member_that_always_runs_does_so_for_any_block() -> None:
    """A block of counters alone is enough to have it say what there is to say without changes."""
    [(_, block)] = Running(members=FUSED).batch(Block(Changes.empty(), {"x_total": 7}))
    assert block.changes.payload.to_pylist() == [b""]
    assert sample("rowkind_state_rows", operator="below", shard=0) not in block.counters


def test_each_member_has_its_own_dead_letters_and_is_named_in_errors() -> None:
    """Unmatched retractions leave from the middle of the stage; where they are fatal, the member's input is named."""
    lost = Block(address(changes(("-D", "lost")), 1))
    [(_, block)] = Running(members=FUSED, unmatched="dead_letter").batch(Block(changes(("-D", "gone"))), lost)
    assert sorted(block.changes.payload.to_pylist()) == [b"0:1", b"[gone]", b"[lost]"]
    with pytest.raises(UnmatchedRetractionError, match=r"above: 1 retraction.* -D from orders, offset 0"):
        Running(members=FUSED, unmatched="fail").batch(lost)


def test_large_output_is_cut() -> None:
    """Blocks stay near their limit, whatever their rows weigh, and hold every change in order."""
    large = changes(*(("+I", "x" * (i % 700)) for i in range(1000)))
    pieces = list(cut(large, limit=10_000))
    assert 10 < len(pieces) < 200
    assert max(len(Block(piece).to_bytes()) for piece in pieces) < 25_000
    back = Changes.concat([Block.from_bytes(Block(piece).to_bytes()).changes for piece in pieces])
    assert back.payload == large.payload
    assert back.seq.tolist() == large.seq.tolist()
    assert list(cut(Changes.empty())) == []
    assert [len(piece) for piece in cut(changes(("+I", "x" * 100)), limit=10)] == [1]


def test_a_processor_is_pickled_by_the_name_of_its_module() -> None:
    """What Spark ships of the processor are names and values, and no code."""
    processor = alone("distinct", Distinct(), by_payload, shards=1, labels=[0])
    assert b"rowkind.service.spark.processor" in pickle.dumps(processor)
    assert len(pickle.dumps(processor)) < 1000


def test_a_row_that_is_written_again_lives_on_in_the_stage_behind(tmp_path: Path) -> None:
    """What a normalize keeps as it is crosses the shuffle as a refresh, and counts as no row on its way."""
    query = Clocked.of(job_of(tmp_path, WRITTEN_AGAIN))
    join = query.sink.input
    assert isinstance(join, PhysicalJoin)
    normalize, right = join.left, join.right
    assert isinstance(normalize, PhysicalNormalize)
    first = Running(members=[_member(normalize)])
    second = Running(members=[_member(join)])
    result: Counter[bytes] = Counter()
    for now, line in (*((now, U) for now in (0, 3_000, 6_000, 9_000)), (12_000, ("r", "+I", {"b": 1}))):
        tables = query.rows(line)
        left = first.batch(Block(calc.run(normalize.input.calc, _scanned(normalize.input, tables))), now=now)
        counted = [name for _, block in left for name in block.counters if name.startswith(OUT)]
        assert counted == ([sample(OUT, operator="normalize_1", kind="+I")] if now == 0 else [])
        other = Block(calc.run(right.calc, _scanned(right, tables)))
        result += fold([block.changes for _, block in second.batch(*(block for _, block in left), other, now=now)])
    assert decode(query.sink.value, binary(result.elements())) == [{"k": 1, "b": 1}]


OUT = "rowkind_operator_rows_out_total"
U: Line = ("u", "+U", {"k": 1, "a": 1, "n": "x"})
WRITTEN_AGAIN = """
job: written-again
ttl: 10s
tables:
  u: {mode: upsert, primary_key: [k], columns: {k: INT NOT NULL, a: INT, n: STRING}}
  r: {mode: append, columns: {b: INT}}
sinks:
  result: {mode: retract, sql: "SELECT u.k, r.b FROM u JOIN r ON u.a = r.b"}
"""


def _member(node: PhysicalJoin | PhysicalNormalize) -> Member:
    return Member(node.node, operator(node), Route(node.calc))


def _scanned(node: PhysicalNode, tables: Mapping[str, Rows]) -> Rows:
    assert isinstance(node, PhysicalScan)
    return pruned(node, tables)
