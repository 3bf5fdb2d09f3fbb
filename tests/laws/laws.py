"""The laws that every operator obeys, as functions of an operator, a changelog and the world that keeps its state.

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
    """What an operator emitted for each batch, and how many blobs it left in the end."""

    outputs: list[Output]
    blobs: int


class World(Protocol):
    """Where state is kept."""

    def play(self, subject: Subject, batches: Batches, *, stopping: bool = False) -> Played:
        """Apply these batches to empty stores, the first one at time 0, the next at 1; with stops in between or not."""


class MemoryWorld:
    """State in dicts, which are copied for every stop."""

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
    """The materialised result after each batch; a row taken back that is not there is a failure."""
    view: Counter[Row] = Counter()
    result = []
    for output in outputs:
        fold(view, output.rows)
        result.append(view.copy())
    return result


def insert_then_retract_leaves_nothing(subject: Subject, batches: Batches, world: World) -> None:
    """When every row has been retracted, the result is empty and so is the state."""
    played = world.play(subject, [*batches, subject.retracting(batches)])
    assert views(played.outputs)[-1] == Counter()
    assert played.blobs == 0, "blobs are left"
    assert played.outputs[-1].state.rows == 0


def one_batch_equals_many(subject: Subject, batches: Batches, world: World) -> None:
    """However a changelog is split into batches, the result at the end is the same, and at every common border."""
    many = views(world.play(subject, batches).outputs)
    assert views(world.play(subject, subject.in_one_batch(batches)).outputs)[-1] == many[-1]
    single = views(world.play(subject, subject.in_single_changes(batches)).outputs)
    borders = 0
    for batch, view in zip(batches, many, strict=True):
        borders += len(batch)
        assert (single[borders - 1] if borders else Counter()) == view


def order_in_a_batch_does_not_matter(subject: Subject, batches: Batches, world: World) -> None:
    """A batch whose rows come in another order emits exactly the same rows."""
    generator = random.Random("another order")
    shuffled = [generator.sample(batch, len(batch)) for batch in batches]
    played, other = world.play(subject, batches), world.play(subject, shuffled)
    assert list(map(exactly, played.outputs)) == list(map(exactly, other.outputs))


def stop_and_resume_changes_nothing(subject: Subject, batches: Batches, world: World) -> None:
    """An operator that is stopped after any batch goes on as if it had not been."""
    played, stopped = world.play(subject, batches), world.play(subject, batches, stopping=True)
    for output, expected in zip(stopped.outputs, played.outputs, strict=True):
        assert exactly(output) == exactly(expected)
        assert output.state == expected.state


def refreshes_change_nothing(subject: Subject, batches: Batches, world: World) -> None:
    """Where no row expires, refreshes of rows that are there or not make no difference to what is emitted.

    But of equal rows they may make another one the oldest, whose arrival number then comes with its retraction.
    """
    played, other = world.play(subject, batches), world.play(subject, with_refreshes(batches, "law"))
    for output, expected in zip(other.outputs, played.outputs, strict=True):
        assert changed(output.rows) == changed(expected.rows)
        assert sorted(output.unmatched.seq) == sorted(expected.unmatched.seq)


def another_split_after_a_stop_changes_nothing(subject: Subject, batches: Batches, world: World) -> None:
    """Stopped in the middle and gone on with in single changes, a changelog gives the same result in the end."""
    half = len(batches) // 2
    split = [*batches[:half], *subject.in_single_changes(batches[half:])]
    whole, stopped = world.play(subject, batches), world.play(subject, split, stopping=True)
    assert [Counter(), *views(stopped.outputs)][-1] == [Counter(), *views(whole.outputs)][-1]


def what_goes_comes_out_before_what_comes(subject: Subject, batches: Batches, world: World) -> None:
    """The contract on order (`columns.emission`): in whatever order changes come, all -D are before any +I."""
    generator = random.Random("order of output")
    for given in (batches, [generator.sample(batch, len(batch)) for batch in batches]):
        for output in world.play(subject, given).outputs:
            kinds = output.rows.kind.tolist()
            assert set(kinds) <= {RowKind.INSERT, RowKind.DELETE}
            assert kinds == sorted(kinds, reverse=True), "a row comes before another one goes"


def exactly(output: Output) -> tuple[Counter[tuple[int, int, bytes]], Counter[int]]:
    """The rows emitted with kind, seq and payload, and the seqs of the unmatched retractions, in no order."""
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
