"""The laws that every operator obeys, as functions of an operator, a changelog and the world that keeps its state.

The world is a parameter so that the same laws run over in-memory blobs and over any other blob store.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from operators.operator import Operator, Output
from operators.store import BlobStore, MemoryStore
from tests.changelogs import Row, fold
from tests.laws.subjects import Subject
from tests.oracle.inputs import Batches

Stores = Mapping[str, BlobStore]


class World(Protocol):
    """Where state is kept."""

    def new(self, operator: Operator) -> Stores:
        """An empty store for each of the operator's arrangements."""

    def reopen(self, stores: Stores) -> Stores:
        """The stores as they are after a restart."""

    def blobs(self, stores: Stores) -> int:
        """How many blobs there are in all of them."""


class MemoryWorld:
    """State in dicts."""

    def new(self, operator: Operator) -> dict[str, MemoryStore]:
        """An empty store for each of the operator's arrangements."""
        return {name: MemoryStore() for name in operator.arrangements}

    def reopen(self, stores: Stores) -> dict[str, MemoryStore]:
        """Copies of the stores."""
        result = {}
        for name, store in stores.items():
            assert isinstance(store, MemoryStore)
            result[name] = store.copy()
        return result

    def blobs(self, stores: Stores) -> int:
        """How many blobs there are in all of them."""
        return sum(len(list(store)) for store in stores.values() if isinstance(store, MemoryStore))


def run(subject: Subject, batches: Batches, world: World, stores: Stores | None = None) -> list[Output]:
    """What the operator puts out for each batch."""
    stores = world.new(subject.operator) if stores is None else stores
    return [
        subject.operator.process(subject.columns(batch), stores, now=number) for number, batch in enumerate(batches)
    ]


def views(outputs: list[Output]) -> list[Counter[Row]]:
    """The materialised result after each batch; a row taken back that is not there is a failure."""
    view: Counter[Row] = Counter()
    result = []
    for output in outputs:
        fold(view, output.rows)
        result.append(view.copy())
    return result


def insert_then_retract_leaves_nothing(subject: Subject, seed: str, world: World) -> None:
    """When every row has been retracted, the result is empty and so is the state."""
    batches = subject.batches(seed)
    batches = [*batches, subject.retracting(batches)]
    stores = world.new(subject.operator)
    outputs = run(subject, batches, world, stores)
    assert views(outputs)[-1] == Counter()
    assert world.blobs(stores) == 0, "blobs are left"
    assert outputs[-1].state.rows == 0


def one_batch_equals_many(subject: Subject, seed: str, world: World) -> None:
    """However a changelog is split into batches, the result at the end is the same, and at every common border."""
    batches = subject.batches(seed)
    many = views(run(subject, batches, world))
    assert views(run(subject, subject.in_one_batch(batches), world))[-1] == many[-1]
    single = views(run(subject, subject.in_single_changes(batches), world))
    borders = 0
    for batch, view in zip(batches, many, strict=True):
        borders += len(batch)
        assert (single[borders - 1] if borders else Counter()) == view


def order_in_a_batch_does_not_matter(subject: Subject, seed: str, world: World) -> None:
    """A batch whose rows come in another order puts out exactly the same rows."""
    batches = subject.batches(seed)
    generator = random.Random(seed)
    shuffled = [generator.sample(batch, len(batch)) for batch in batches]
    for one, other in zip(run(subject, batches, world), run(subject, shuffled, world), strict=True):
        assert exactly(one) == exactly(other)


def stop_and_resume_changes_nothing(subject: Subject, seed: str, world: World) -> None:
    """An operator that is stopped after any batch goes on as if it had not been."""
    batches = subject.batches(seed)
    stores = world.new(subject.operator)
    for number, (batch, expected) in enumerate(zip(batches, run(subject, batches, world), strict=True)):
        stores = world.reopen(stores)
        output = subject.operator.process(subject.columns(batch), stores, now=number)
        assert exactly(output) == exactly(expected)
        assert output.state == expected.state


def exactly(output: Output) -> tuple[Counter[tuple[int, int, bytes]], Counter[int]]:
    """The rows put out with kind, seq and payload, and the seqs of the unmatched retractions, in no order."""
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
)
