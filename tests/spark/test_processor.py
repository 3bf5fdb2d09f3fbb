"""The processor without a query: its input, its output, and the blocks that pass through unchanged."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro.json_rows import decode
from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.arrangement.store import MANIFEST, BlobStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.block import Block
from rowkind.operators.columns.changes import Changes, Rows, binary
from rowkind.operators.operator import Output
from rowkind.service.execute.blocks import cut
from rowkind.service.execute.failures import OnFailure
from rowkind.service.execute.members import Member, address, addressed
from rowkind.service.execute.metrics import sample
from rowkind.service.execute.route import deliver, leave
from rowkind.service.execute.stage import members
from rowkind.service.physical.graph import graph
from rowkind.service.query.memory import Fold, pruned
from rowkind.service.spark.errors import UnmatchedRetractionError
from rowkind.service.spark.placement import placement
from tests.clocked import Clocked, Line, job_of
from tests.spark.distinct import Distinct, batch_of, changes, fold, packed, unpacked, way_out
from tests.spark.one_shard import Running, Sent
from tests.spark.running import LEVEL, SINK, WRITER, alone

ROWS_IN = sample("rowkind_operator_rows_in_total", sink=SINK, operator="distinct", kind="+I")
ROWS_OUT = sample("rowkind_operator_rows_out_total", sink=SINK, operator="distinct", kind="+I")
UNMATCHED = sample("rowkind_unmatched_retractions_total", sink=SINK, operator="distinct")


def letters(lost: Changes) -> pa.BinaryArray:
    """Return the rows in brackets, as their dead letters."""
    return packed(b"[" + row + b"]" for row in unpacked(lost.payload))


def test_blocks_of_a_shard_are_one_batch() -> None:
    """Rows that are inserted and retracted in different blocks of one batch cancel out in the operator."""
    running = Running()
    out = running.batch(Block(batch_of(("+I", "a"), ("+I", "b"))), Block(batch_of(("-D", "a"), start=2)))
    assert fold([out.changes]) == {b"b": 1}
    out = running.batch(Block(batch_of(("-D", "b"))))
    assert out.changes.kind.tolist() == [RowKind.DELETE]


def test_output_goes_to_the_label_of_its_shard() -> None:
    """Each change leaves in a block for the writer's level, and for the shard that its hash selects."""
    labels = placement(5)
    out = Running(labels).batch(Block(batch_of(*(("+I", f"row {i}") for i in range(100)))), label=labels[3])
    assert {(label, level) for label, level, _ in out.blocks} == {(label, WRITER) for label in labels}
    for label, _, block in out.blocks:
        assert set((block.changes.hash % np.uint64(5)).tolist()) <= {label % 5}
    assert len(out.rows) == 100


def test_what_stays_leaves_for_its_own_shard() -> None:
    """Rows that are already partitioned as their consumer needs them stay in their shard, whatever their keys are."""
    labels = placement(5)
    member = Member(0, SINK, "distinct", "state", Distinct(), (way_out(stays=True),))
    rows = Block(batch_of(*(("+I", f"row {i}") for i in range(100))))
    out = Running(labels, members=[member]).batch(rows, label=labels[3])
    assert {label for label, _, _ in out.blocks} == {labels[3]}
    assert len(out.rows) == 100


@pytest.mark.parametrize("level", [LEVEL + 1, LEVEL + 2], ids=["deeper", "the writer's"])
def test_blocks_for_other_levels_ride_through_as_they_are(level: int) -> None:
    """Rows, counters and dead letters keep label, level and every byte, and no operator processes them."""
    labels = placement(3)
    blocks = [
        Block(batch_of(("+I", "a"), ("-D", "b"))),
        Block(Batch.empty(), {"x_total": 7}),
        Block(Batch.of_letters(binary([b"dead letter"]))),
    ]
    edges = [(labels[1], level, block.to_bytes()) for block in blocks]
    assert Running(labels, writer=LEVEL + 2).edges(*edges, label=labels[1]) == edges


def test_blocks_of_several_levels_come_in_one_batch() -> None:
    """The operator receives the blocks for its level, in any order, and the other blocks pass through unchanged."""
    through = (0, WRITER, Block(batch_of(("+I", "through")), {"x_total": 7}).to_bytes())
    a, b = ((0, LEVEL, Block(batch_of(("+I", row))).to_bytes()) for row in "ab")
    out = Running().edges(a, through, b)
    assert through in out
    own = Sent.of([edge for edge in out if edge != through])
    assert own.rows == [b"a", b"b"]
    assert own.counters[ROWS_IN] == 2
    assert "x_total" not in own.counters


@pytest.mark.parametrize("level", [WRITER, WRITER + 1], ids=["the writer's", "behind it"])
def test_a_stage_without_members_lets_all_pass(level: int) -> None:
    """A checkpoint may have more stages than the graph needs; a stage without members passes all blocks on."""
    edges = [(0, WRITER, Block(batch_of(("+I", "a")), {"x_total": 1}).to_bytes())]
    assert Running(members=[], level=level).edges(*edges) == edges


def test_counters_leave_once_for_the_writer() -> None:
    """All counters are in one block without changes, for the writer's level, however deep that level is."""
    labels = placement(4)
    one, two = Block(batch_of(("+I", "a"))), Block(batch_of(("+I", "b"), start=1))
    out = Running(labels, writer=5).batch(one, two, label=labels[2])
    [(label, level, block)] = [each for each in out.blocks if each[2].counters]
    assert (label, level, len(block.changes)) == (labels[2], 5, 0)
    assert block.counters[ROWS_IN] == 2
    assert block.counters[ROWS_OUT] == 2
    assert block.counters[UNMATCHED] == 0


def test_counters_leave_without_changes() -> None:
    """A batch that emits no rows still emits its counters, in an empty block."""
    running = Running()
    running.batch(Block(batch_of(("+I", "a"))))
    out = running.batch(Block(batch_of(("+I", "a"))))
    assert [len(block.changes) for _, _, block in out.blocks] == [0]
    assert out.counters[ROWS_IN] == 1
    assert ROWS_OUT not in out.counters


def test_a_block_without_changes_does_not_touch_the_operator() -> None:
    """Empty blocks are for operators that start without rows; any other operator ignores them and counts nothing."""
    [(_, level, block)] = Running().batch(Block()).blocks
    assert (level, len(block.changes), block.counters) == (WRITER, 0, {})


def test_state_gauges_name_the_shard() -> None:
    """The size of state is reported per shard, by the shard's number and not by its label."""
    labels = placement(3)
    for shard, label in enumerate(labels):
        counters = Running(labels).batch(Block(batch_of(("+I", "a"), ("+I", "b"))), label=label).counters
        assert counters[sample("rowkind_state_rows", sink=SINK, operator="distinct", shard=shard)] == 2
        assert counters[sample("rowkind_state_runs", sink=SINK, operator="distinct", shard=shard)] == 1


@pytest.mark.parametrize("policy", ["ignore", "dead_letter"])
def test_unmatched_retractions_are_counted(policy: Literal["ignore", "dead_letter"]) -> None:
    """A retraction that finds no row is counted under either lenient policy, and changes no state."""
    running = Running(unmatched=policy, wrap=letters)
    assert running.batch(Block(batch_of(("-D", "never there"), ("+I", "a")))).counters[UNMATCHED] == 1
    assert running.batch(Block(batch_of(("+I", "never there")))).rows == [b"never there"]


def test_unmatched_retractions_become_dead_letters() -> None:
    """With `dead_letter`, each unmatched retraction becomes a dead letter made by `wrap`, and is sent to the writer."""
    labels = placement(3)
    running = Running(labels, writer=4, unmatched="dead_letter", wrap=letters)
    out = running.batch(Block(batch_of(("-D", "lost"))), label=labels[1])
    [(label, level, block)] = [each for each in out.blocks if len(each[2].batch)]
    assert (label, level, len(block.changes)) == (labels[1], 4, 0)
    assert unpacked(block.batch.letters) == [b"[lost]"]


def test_unmatched_retractions_fail() -> None:
    """With `fail`, the message names the sink, the operator and the record, and says what to do."""
    lost = changes(("+I", "a"), ("-D", "lost"), start=(7 << 16) + 1)
    said = r"^sink, distinct: 1 retraction.*offset 7 of partition 2.*unmatched"
    with pytest.raises(UnmatchedRetractionError, match=said):
        Running(unmatched="fail").batch(Block(Batch(lost)))


@dataclass(frozen=True)
class Counting:
    """Emits, in every batch, how many changes of each side it has received."""

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The counts so far."""
        return {"rows": None}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Add the changes to the counts."""
        assert now > 0
        changes = batch.changes
        before = stores["rows"].get(MANIFEST)
        counts = Counter(pickle.loads(before) if before else {})
        counts.update(changes.side.tolist())
        stores["rows"].put(MANIFEST, pa.py_buffer(pickle.dumps(counts)))
        text = " ".join(f"{side}:{count}" for side, count in sorted(counts.items()))
        rows = Rows(np.array([0], np.int8), np.array([0]), packed([text.encode()]))
        return Output(Emitted(rows), changes.filter(changes.weight < 0), StateSize(len(counts)))


BELOW = 3
ABOVE = 5
FIRST_SINK = 8
SECOND_SINK = 9
FUSED = [
    Member(
        BELOW,
        SINK,
        "below",
        "first",
        Distinct(),
        (way_out(ABOVE, LEVEL, side=1, stays=True), way_out(FIRST_SINK)),
        wrap=letters,
    ),
    Member(
        ABOVE,
        SINK,
        "above",
        "second",
        Counting(),
        (way_out(SECOND_SINK),),
        ("orders", "below"),
        always_runs=0,
        wrap=letters,
    ),
]
"""Two operators of one level. The first one's output goes to the second one, and out of the stage."""


def block_for(place: int, *rows: tuple[str, str], start: int = 0) -> Block:
    """Return a block of changes for an operator of the graph."""
    return Block(address(batch_of(*rows, start=start), place))


def test_members_hand_their_changes_on_in_memory() -> None:
    """Input reaches the member to which it is addressed, and a member's output reaches the consumers at its exits."""
    running = Running(members=FUSED)
    for_below = block_for(BELOW, ("+I", "a"), ("+I", "a"), ("+I", "b"))
    for_above = block_for(ABOVE, ("+I", "c"), ("+I", "d"))
    out = running.batch(Block(Batch.concat([for_above.batch, for_below.batch])))
    assert out.rows_for(FIRST_SINK) == [b"a", b"b"]
    assert out.rows_for(SECOND_SINK) == [b"0:2 1:2"]
    out = running.batch(block_for(BELOW, ("-D", "a"), ("-D", "b"), start=9))
    assert out.rows_for(FIRST_SINK) == [b"b"]
    assert out.rows_for(SECOND_SINK) == [b"0:2 1:3"]
    assert out.counters[sample("rowkind_operator_rows_in_total", sink=SINK, operator="below", kind="-D")] == 2
    assert out.counters[sample("rowkind_operator_rows_in_total", sink=SINK, operator="above", kind="-D")] == 1
    assert out.counters[sample("rowkind_state_rows", sink=SINK, operator="below", shard=0)] == 1
    assert out.counters[sample("rowkind_state_rows", sink=SINK, operator="above", shard=0)] == 2


def test_changes_for_nobody_in_the_stage_reach_nobody() -> None:
    """A member processes the changes addressed to its place in the graph, not to its place in the stage."""
    out = Running(members=FUSED).batch(block_for(0, ("+I", "a")), block_for(1, ("+I", "b")))
    assert out.rows_for(SECOND_SINK) == [b""]
    assert sample("rowkind_operator_rows_in_total", sink=SINK, operator="above", kind="+I") not in out.counters


def test_one_that_emits_for_several_levels_sends_to_each() -> None:
    """A deeper operator and a sink each get a block with the same rows."""
    member = Member(0, SINK, "distinct", "state", Distinct(), (way_out(1, 2), way_out(2, 3)))
    out = Running(members=[member], writer=3).batch(Block(batch_of(("+I", "a"), ("+I", "b"))))
    assert [(level, len(block.changes)) for _, level, block in out.blocks] == [(2, 2), (3, 2), (3, 0)]
    assert out.rows_for(1) == out.rows_for(2) == [b"a", b"b"]
    assert out.counters[ROWS_OUT] == 2


def test_a_member_that_always_runs_does_so_for_any_block_of_its_shard() -> None:
    """An empty block makes the member emit its output without changes, once and not in every shard."""
    labels = placement(2)
    first, second = (Running(labels, members=FUSED).batch(Block(), label=label) for label in labels)
    assert first.rows_for(SECOND_SINK) == [b""]
    assert sample("rowkind_state_rows", sink=SINK, operator="below", shard=0) not in first.counters
    assert not second.rows


def test_each_member_has_its_own_dead_letters_and_is_named_in_errors() -> None:
    """Unmatched retractions become dead letters in mid-stage; with `fail`, the message names the member's input."""
    lost = block_for(ABOVE, ("-D", "lost"))
    out = Running(members=FUSED, unmatched="dead_letter").batch(block_for(BELOW, ("-D", "gone")), lost)
    assert out.rows == [b"0:1"]
    assert sorted(unpacked(out.batch.letters)) == [b"[gone]", b"[lost]"]
    with pytest.raises(UnmatchedRetractionError, match=r"sink, above: 1 retraction.* -D from orders, offset 0"):
        Running(members=FUSED, unmatched="fail").batch(lost)


def test_large_output_is_cut() -> None:
    """Blocks stay near their size limit, however large their rows are, and keep every change in order."""
    large = batch_of(*(("+I", "x" * (i % 700)) for i in range(1000)))
    pieces = list(cut(large, limit=10_000))
    assert 10 < len(pieces) < 200
    assert max(len(Block(piece).to_bytes()) for piece in pieces) < 25_000
    back = Changes.concat([Block.from_bytes(Block(piece).to_bytes()).changes for piece in pieces])
    assert back.payload == large.changes.payload
    assert back.seq.tolist() == large.changes.seq.tolist()
    assert list(cut(Batch.empty())) == []
    assert [len(piece) for piece in cut(batch_of(("+I", "x" * 100)), limit=10)] == [1]


def test_a_block_of_everything_is_the_same_after_its_journey() -> None:
    """Refreshes, truncations and dead letters survive encoding and decoding, even if the batch is cut."""
    letters = binary([b"letter", b""])
    batch = Batch(changes(("+I", "a"), ("-D", "b")), changes(("+I", "c")), {3: 1 << 40}, letters)
    for pieces in (1, 2, 3, 6):
        sent = [Block(batch.piece(number, pieces)).to_bytes() for number in range(pieces)]
        back = Batch.concat([Block.from_bytes(each).batch for each in sent])
        assert unpacked(back.changes.payload) == [b"a", b"b"]
        assert back.changes.kind.tolist() == [RowKind.INSERT, RowKind.DELETE]
        assert unpacked(back.refreshes.payload) == [b"c"]
        assert (back.truncations, back.letters.to_pylist()) == ({3: 1 << 40}, [b"letter", b""])


def test_a_processor_is_pickled_by_the_name_of_its_module() -> None:
    """The pickled processor contains names and values, and no code."""
    processor = alone("distinct", Distinct(), labels=[0])
    assert b"rowkind.service.spark.processor" in pickle.dumps(processor)
    assert len(pickle.dumps(processor)) < 2000


def test_a_row_that_is_written_again_lives_on_in_the_stage_behind(tmp_path: Path) -> None:
    """A row that a normalize operator leaves unchanged crosses the shuffle as a refresh, and is not counted."""
    query = Clocked.of(job_of(tmp_path, WRITTEN_AGAIN))
    whole = graph([query.sink])
    assert [each.level for each in whole.operators] == [1, 2]
    stages = [
        Running(members=[member], level=level, writer=whole.writer) for level, member in enumerate(members(whole, 1), 1)
    ]
    result = Fold(keyed=False)
    for now, line in (*((now, U) for now in (0, 3_000, 6_000, 9_000)), (12_000, ("r", "+I", {"b": 1}))):
        tables = query.rows(line)
        edges = [
            (shard, level, Block(part).to_bytes())
            for each in whole.scans
            for way in each.exits
            for shard, level, part in deliver(
                way, leave(way, Emitted(pruned(each.scan, tables)), OnFailure(way.node)), 1
            )
        ]
        for stage in stages:
            edges = stage.edges(*edges, now=now)
        out = Sent.of(edges)
        counted = [name for _, _, block in out.blocks for name in block.counters if name.startswith(OUT)]
        assert [name for name in counted if "normalize_1" in name] == (
            [sample(OUT, sink="result", operator="normalize_1", kind="+I")] if now == 0 else []
        )
        result.apply(addressed(out.batch, whole.place("result")).changes)
    assert decode(query.sink.value, pa.array(result.payloads, pa.binary())) == [{"k": 1, "b": 1}]


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
