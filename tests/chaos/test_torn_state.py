"""A scenario in which a crash of the machine takes the end of what Spark has written of the state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.chaos.checks import RETRACT_BY_KEY
from tests.chaos.conftest import SetStage
from tests.chaos.stage import SLOW, Stage

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_state_that_was_torn_is_made_again(set_stage: SetStage) -> None:
    """From what was there before, by doing again what was done since, none of it twice; from the topics at last."""
    # One story, since each start takes a while.
    stage = set_stage(RETRACT_BY_KEY)
    with stage.job() as job:
        stage.await_words(job, ": writing to topic")
        job.kill()
    # A kill while the first batch was noted: the draft of the note is in a folder where Spark expects nothing.
    for log in stage.checkpoint.glob("*/[0-9]*"):
        shutil.rmtree(log) if log.is_dir() else log.unlink()
    (stage.checkpoint / "offsets" / ".0.3f2a.tmp").touch()
    stage.manipulate(0.5)
    stage.runs()
    # The change log that was written last.
    newest = max(change_logs(stage), key=version)
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    stage.manipulate(0.1)
    said = stage.runs()
    assert f"the state after batch {version(newest) - 1} is damaged" in said
    # All that the last two batches have written.
    last = max(map(version, change_logs(stage)))
    for file in change_logs(stage):
        if version(file) >= last - 1:
            file.unlink()
    stage.manipulate(0.1)
    said = stage.runs()
    assert f"the state after batch {last - 2} is damaged" in said
    assert "Traceback" not in said
    # All of it; and Spark forgets where batches began and ended that lie far back.
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
    """The changes to the state of each shard, a file a batch."""
    return list(stage.checkpoint.glob("state/*/*/*.changelog"))


def version(file: Path) -> int:
    """Of the state that a file leads to; after the first batch it is 1."""
    return int(file.stem)
