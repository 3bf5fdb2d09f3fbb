"""A scenario in which a crash of the machine corrupts or deletes the newest files of Spark's state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.chaos.checks import RETRACT_BY_KEY
from tests.chaos.conftest import SetStage
from tests.chaos.stage import SLOW, Stage

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_state_that_was_torn_is_made_again(set_stage: SetStage) -> None:
    """State is restored from earlier batches and replayed without writing twice, or rebuilt from the topics."""
    # One test, because each start takes a while.
    stage = set_stage(RETRACT_BY_KEY)
    with stage.job() as job:
        stage.await_words(job, ": writing to topic")
        job.kill()
    # As after a kill while the first batch was logged: a draft is in a folder that Spark expects to be empty.
    for log in stage.checkpoint.glob("*/[0-9]*"):
        shutil.rmtree(log) if log.is_dir() else log.unlink()
    (stage.checkpoint / "offsets" / ".0.3f2a.tmp").touch()
    stage.manipulate(0.5)
    stage.runs()
    # Truncate the change log that was written last.
    newest = max(change_logs(stage), key=version)
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    stage.manipulate(0.1)
    said = stage.runs()
    assert f"the state after batch {version(newest) - 1} is damaged" in said
    # Delete everything that the last two batches have written.
    last = max(map(version, change_logs(stage)))
    for file in change_logs(stage):
        if version(file) >= last - 1:
            file.unlink()
    stage.manipulate(0.1)
    said = stage.runs()
    assert f"the state after batch {last - 2} is damaged" in said
    assert "Traceback" not in said
    # Delete all state, and the older files of the offset log, which Spark removes as well.
    begun = sorted(stage.checkpoint.glob("offsets/[0-9]*"), key=lambda file: int(file.name))
    for file in (*stage.checkpoint.glob("state/*/*/[0-9]*.*"), *begun[:-2]):
        file.unlink()
    stage.manipulate(0.1)
    with stage.job() as job:
        ended = job.ended(SLOW)
    assert ended.code == 2, ended.error
    assert "Traceback" not in ended.error
    assert "`rowkind run --reset-state`" in ended.error
    stage.runs("--reset-state")
    stage.validate()


def change_logs(stage: Stage) -> list[Path]:
    """Return the change logs of the state: per shard, one file per batch."""
    return list(stage.checkpoint.glob("state/*/*/*.changelog"))


def version(file: Path) -> int:
    """Return the version of the state that a file leads to; after the first batch it is 1."""
    return int(file.stem)
