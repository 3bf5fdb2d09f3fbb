"""The laws that every operator obeys, as functions of an operator, a changelog and a world that keeps its state.

The world is a parameter so that the same laws run over in-memory blobs and over any other blob store.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.operator import Output
from tests.changelogs import Row, changed, fold
from tests.laws.subjects import Subject
from tests.oracle.inputs import Batches, with_refreshes


@dataclass(frozen=True)
class Played:
    """The output for each batch, and the number of blobs left at the end."""

    outputs: list[Output]
    blobs: int


class World(Protocol):
    """A place that keeps state."""

    def play(self, subject: Subject, batches: Batches, *, stopping: bool = False) -> Played:
        """Apply the batches to empty stores at times 0, 1, …; with `stopping`, restart after each batch."""


class MemoryWorld:
    """State in dicts, which are copied at every stop."""

    def play(self, subject: Subject, batches: Batches, *, stopping: bool = False) -> Played:
        """Apply these batches to empty stores."""
        stores = {name: MemoryStore() for name in subject.operator.arrangements}
        outputs = []
        for now, batch in enumerate(batches):
            outputs.append(subject.operator.process(subject.columns(batch), stores, now))
            if stopping:
                stores = {name: store.copy() for name, store in stores.items()}
        return Played(outputs, sum(len(list(store)) for store in stores.values()))


def views(outputs: list[Output]) -> list[Counter[Row]]:
    """Return the materialised result after each batch; fail if a retracted row is not in it."""
    view: Counter[Row] = Counter()
    result = []
    for output in outputs:
        fold(view, output.rows)
        result.append(view.copy())
    return result


def insert_then_retract_leaves_nothing(subject: Subject, batches: Batches, world: World) -> None:
    """When every row has been retracted, the result and the state are empty."""
    played = world.play(subject, [*batches, subject.retracting(batches)])
    assert views(played.outputs)[-1] == Counter()
    assert played.blobs == 0, "blobs are left"
    assert played.outputs[-1].state.rows == 0


def one_batch_equals_many(subject: Subject, batches: Batches, world: World) -> None:
    """The result at the end, and at every common batch boundary, does not depend on how a changelog is split."""
    many = views(world.play(subject, batches).outputs)
    assert views(world.play(subject, subject.in_one_batch(batches)).outputs)[-1] == many[-1]
    single = views(world.play(subject, subject.in_single_changes(batches)).outputs)
    borders = 0
    for batch, view in zip(batches, many, strict=True):
        borders += len(batch)
        assert (single[borders - 1] if borders else Counter()) == view


def order_in_a_batch_does_not_matter(subject: Subject, batches: Batches, world: World) -> None:
    """A batch with its rows in another order emits exactly the same rows."""
    generator = random.Random("another order")
    shuffled = [generator.sample(batch, len(batch)) for batch in batches]
    played, other = world.play(subject, batches), world.play(subject, shuffled)
    assert list(map(exactly, played.outputs)) == list(map(exactly, other.outputs))


def stop_and_resume_changes_nothing(subject: Subject, batches: Batches, world: World) -> None:
    """An operator that is stopped after any batch continues as if it had not been stopped."""
    played, stopped = world.play(subject, batches), world.play(subject, batches, stopping=True)
    for output, expected in zip(stopped.outputs, played.outputs, strict=True):
        assert exactly(output) == exactly(expected)
        assert output.state == expected.state


def refreshes_change_nothing(subject: Subject, batches: Batches, world: World) -> None:
    """If no row expires, refreshes of present and of missing rows do not change the output.

    Exception: a refresh may make another of several equal rows the oldest, so that a retraction carries that row's
    arrival number.
    """
    played, other = world.play(subject, batches), world.play(subject, with_refreshes(batches, "law"))
    for output, expected in zip(other.outputs, played.outputs, strict=True):
        assert changed(output.rows) == changed(expected.rows)
        assert sorted(output.unmatched.seq) == sorted(expected.unmatched.seq)


def another_split_after_a_stop_changes_nothing(subject: Subject, batches: Batches, world: World) -> None:
    """A changelog that is stopped half-way and continued in single changes gives the same result in the end."""
    half = len(batches) // 2
    split = [*batches[:half], *subject.in_single_changes(batches[half:])]
    whole, stopped = world.play(subject, batches), world.play(subject, split, stopping=True)
    assert [Counter(), *views(stopped.outputs)][-1] == [Counter(), *views(whole.outputs)][-1]


def what_goes_comes_out_before_what_comes(subject: Subject, batches: Batches, world: World) -> None:
    """The output contract (`columns.emission`): every -D precedes every +I, for any order of the input."""
    generator = random.Random("order of output")
    for given in (batches, [generator.sample(batch, len(batch)) for batch in batches]):
        for output in world.play(subject, given).outputs:
            kinds = output.rows.kind.tolist()
            assert set(kinds) <= {RowKind.INSERT, RowKind.DELETE}
            assert kinds == sorted(kinds, reverse=True), "a row comes before another one goes"


def exactly(output: Output) -> tuple[Counter[tuple[int, int, bytes]], Counter[int]]:
    """Return the emitted rows with kind, seq and payload, and the seqs of unmatched retractions, in no order."""
    rows = output.rows
    return (
        Counter(zip(rows.kind.tolist(), rows.seq.tolist(), rows.payload.to_pylist(), strict=True)),
        Counter(output.unmatched.seq.tolist()),
    )


LAWS = (
    insert_then_retract_leaves_nothing,
    one_batch_equals_many,
    order_in_a_batch_does_not_matter,
    stop_and_resume_changes_nothing,
    refreshes_change_nothing,
    another_split_after_a_stop_changes_nothing,
    what_goes_comes_out_before_what_comes,
)
