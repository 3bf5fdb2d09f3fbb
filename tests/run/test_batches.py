"""Repair of Spark's logs of a query's batches after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rowkind.service.checkpoint.checkpoint import Checkpoint
from rowkind.service.checkpoint.checkpoint_metadata import Contents
from rowkind.service.query.errors import CheckpointTornError

pytestmark = pytest.mark.spark

CONTENTS = Contents({"paid": {"sink.mode": "append"}}, shards=4, parallelism=2, levels=1)
KEPT = '{"batchWatermarkMs":0,"batchTimestampMs":23,"conf":{"spark.sql.shuffle.partitions":"%d"}}'
BATCH = f'v1\n{KEPT % 2}\n{{"t": {{"id": "x", "at": {{"0": %d}}}}}}'
ENDED = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "job" / "sink"


def logs(folder: Path, begun: Sequence[str], ended: Sequence[str]) -> None:
    """Write Spark's logs of batches, and the id of the checkpoint."""
    for log, files in (("offsets", begun), ("commits", ended)):
        (folder / log).mkdir(parents=True)
        for number, text in enumerate(files):
            (folder / log / str(number)).write_text(text)
    (folder / "metadata").write_text('{"id":"c"}')


def test_what_was_torn_is_removed_so_that_the_batch_is_done_again(spark: SparkSession, folder: Path) -> None:
    """A damaged end is removed, and a damaged beginning with all state derived from it; undamaged files stay."""
    checkpoint = Checkpoint(spark, str(folder))
    assert checkpoint.mend() == []
    assert checkpoint.position() is None
    logs(folder, [BATCH % 3, BATCH % 5, "v1\n{"], [ENDED, ""])
    states = [folder / "state" / "0" / "1" / name for name in ("2.changelog", "3.changelog", "3.zip")]
    for state in states:
        state.parent.mkdir(parents=True, exist_ok=True)
        state.touch()
    assert checkpoint.mend() == ["offsets/2", "commits/1"]
    # A batch that is begun again may end elsewhere, and Spark does not overwrite existing files.
    assert [state.exists() for state in states] == [True, False, False]
    assert checkpoint.mend() == []
    assert [path.name for path in sorted((folder / "offsets").glob("[0-9]*"))] == ["0", "1"]
    position = checkpoint.position()
    assert position is not None
    assert position.at == {("t", 0): 3}


def test_a_batch_that_has_ended_and_whose_beginning_is_torn_has_not_ended(spark: SparkSession, folder: Path) -> None:
    """If the beginning of an ended batch is damaged, its end is removed too: Spark would continue from anywhere."""
    checkpoint = Checkpoint(spark, str(folder))
    logs(folder, [BATCH % 3, ""], [ENDED, ENDED])
    assert checkpoint.mend() == ["offsets/1", "commits/1"]


def test_a_checkpoint_without_a_name_is_refused(spark: SparkSession, folder: Path) -> None:
    """The results already written under the lost name would be written again under a new one."""
    logs(folder, [BATCH % 3], [ENDED])
    (folder / "metadata").write_text("")
    with pytest.raises(CheckpointTornError, match="--reset-state"):
        Checkpoint(spark, str(folder)).mend()


def test_a_batch_of_an_earlier_release_gets_its_number_and_its_time(spark: SparkSession, folder: Path) -> None:
    """The number and the time are Spark's, whose numbers may be behind; a batch that has a number keeps it."""
    checkpoint = Checkpoint(spark, str(folder))
    checkpoint.claim(replace(CONTENTS, ahead=4))
    assert checkpoint.last() is None
    logs(folder, [BATCH % 3, BATCH % 5], [ENDED])
    for _ in range(2):
        last = checkpoint.last()
        assert last is not None
        assert (last.number, last.now, last.at) == (5, 23, {("t", 0): 5})
    assert (folder / "offsets" / "0").read_text() == BATCH % 3
    numbered = (BATCH % 5).removesuffix("}") + ', "": {"at": {}, "number": 9, "now": 7}}'
    (folder / "offsets" / "1").write_text(numbered)
    last = checkpoint.last()
    assert last is not None
    assert (last.number, last.now) == (9, 7)


def test_batches_are_undone_as_far_back_as_state_is_torn(spark: SparkSession, folder: Path) -> None:
    """The last ended batch is repeated as Spark has logged it, and the batches after it are replayed."""
    checkpoint = Checkpoint(spark, str(folder))
    logs(folder, [BATCH % 3, BATCH % 5, BATCH % 7, BATCH % 9], [ENDED, ENDED, ENDED])

    def known() -> list[list[str]]:
        return [sorted(path.name for path in (folder / log).glob("[0-9]*")) for log in ("offsets", "commits")]

    assert not checkpoint.rests()
    assert checkpoint.back() == 2
    assert known() == [["0", "1", "2"], ["0", "1"]]
    assert checkpoint.back() == 1
    assert known() == [["0", "1"], ["0"]]
    checkpoint.undo()
    assert known() == [["0"], ["0"]]
    assert checkpoint.rests()
    (folder / "offsets" / "0").unlink()
    assert checkpoint.back() is None


def test_state_that_did_not_arrive_in_other_partitions_is_where_it_was(spark: SparkSession, folder: Path) -> None:
    """An interrupted move of state leaves no trace; a completed one is recognized even if it was not recorded."""
    checkpoint = Checkpoint(spark, str(folder))
    checkpoint.claim(CONTENTS)
    moved = BATCH.replace(KEPT % 2, KEPT % 4)
    logs(folder, [BATCH % 3, BATCH % 5, moved % 5], [ENDED, ENDED])
    of_the_move = [folder / "state" / "0" / name for name in ("3/3.zip", "0/3.zip", "_metadata/v2/2")]
    before = [folder / "state" / "0" / name for name in ("0/2.changelog", "_metadata/v2/0")]
    for state in (*of_the_move, *before):
        state.parent.mkdir(parents=True, exist_ok=True)
        state.write_text("{}")
    assert checkpoint.mend() == []
    assert not any(state.exists() for state in of_the_move)
    assert all(state.exists() for state in before)
    assert not (folder / "offsets" / "2").exists()
    assert tasks(checkpoint) == 2
    (folder / "offsets" / "2").write_text(moved % 5)
    (folder / "commits" / "2").write_text(ENDED)
    assert checkpoint.mend() == []
    assert tasks(checkpoint) == 4
    # The state before the move is gone, so the move cannot be repeated.
    assert checkpoint.back() is None


def tasks(checkpoint: Checkpoint) -> int:
    """Return the number of partitions of the state according to the checkpoint metadata."""
    contents = checkpoint.contents()
    assert contents is not None
    return contents.parallelism
