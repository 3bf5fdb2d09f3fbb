"""The operator laws that concern state, in a real query on RocksDB."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.laws.cases import CASES, Law, name
from tests.laws.laws import (
    another_split_after_a_stop_changes_nothing,
    insert_then_retract_leaves_nothing,
    one_batch_equals_many,
    stop_and_resume_changes_nothing,
)
from tests.laws.subjects import JOINS, Subject
from tests.oracle.inputs import Batches
from tests.spark.replay import RecordingWorld, RocksDBWorld

pytestmark = pytest.mark.spark

FEWER = JOINS[1::5]
"""Joins of every kind and layout, but not every combination."""

OF_STATE = (
    insert_then_retract_leaves_nothing,
    one_batch_equals_many,
    stop_and_resume_changes_nothing,
    another_split_after_a_stop_changes_nothing,
)
"""The other laws concern the contents of a batch, which do not depend on where state is kept."""

ON_ROCKSDB = [
    (law, subject) for law, subject in CASES if law in OF_STATE and (subject not in JOINS or subject in FEWER)
]


def changelog(subject: Subject) -> Batches:
    """Return a small random changelog. It is the same for all laws, so that they share runs."""
    seed = f"{subject}, on RocksDB"
    print(f"seed '{seed}'")
    return subject.batches(seed, batches=3, changes=6)


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RocksDBWorld:
    """All runs that the laws need, played by one query that is stopped once in between."""
    recording = RecordingWorld()
    for law, subject in ON_ROCKSDB:
        law(subject, changelog(subject), recording)
    return RocksDBWorld.of(recording.runs, spark, tmp_path_factory.mktemp("laws"))


@pytest.mark.parametrize(("law", "subject"), ON_ROCKSDB, ids=name)
def test_the_operator_obeys_the_law(law: Law, subject: Subject, world: RocksDBWorld) -> None:
    """The law holds for a random changelog, whose seed is printed."""
    law(subject, changelog(subject), world)


def test_what_is_not_retracted_is_in_the_state_store(world: RocksDBWorld) -> None:
    """Rows that were not retracted are in the store, so an empty store is not trivial."""
    left = [played for played in world.played.values() if played.outputs and played.outputs[-1].state.rows]
    assert len(left) > len(world.played) // 2
    assert all(played.blobs > 1 for played in left)
