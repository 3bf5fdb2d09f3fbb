# ruff: noqa: SLF001 - Spark's own file systems are to be had through its gateway only
"""The checkpoint of one query: Spark's logs of its batches and its state, and how both are put right.

Spark notes in `offsets` where a batch begins and ends before it is done, and in `commits` that it is; `state` has what
operators keep, by batch and partition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it ships no type information
from pyspark.sql import SparkSession

from rowkind.service.checkpoint.checkpoint_metadata import Contents
from rowkind.service.checkpoint.metadata_files import Notes
from rowkind.service.kafka.offsets import Offset
from rowkind.service.kafka.progress import Progress
from rowkind.service.monitoring.progress import Told
from rowkind.service.query.errors import CheckpointFolderError, CheckpointTornError, SavepointError
from rowkind.service.spark.errors import first_line
from rowkind.service.spark.stage_tasks import tasks_told

_PARTITIONS = "spark.sql.shuffle.partitions"


class Checkpoint(Notes):
    """The checkpoint of one query, in the hands of this run of the job."""

    def mend(self) -> list[str]:
        """Remove what Spark wrote last and a crash of the machine has torn, so that the batch is done again.

        State that was on its way to other partitions (`repartition`) is left where it was.

        A lost commit marker is recovered by running the batch again. Lost offsets are planned again, or replayed if
        anything of the batch was written (`service.checkpoint.replay`). Gives the files removed.

        Raises:
            CheckpointTornError: Nobody knows whose checkpoint it is any more.
            CheckpointFolderError: The folder cannot be read or written.
        """
        with self._files() as files:
            removed = []
            ended, begun = (self._numbers(files, log) for log in ("commits", "offsets"))
            if begun and not self._whole(files, f"offsets/{begun[-1]}"):
                removed.append(f"offsets/{begun[-1]}")
                self._drop_state(files, begun[-1])
            elif begun[-1:] != ended[-1:] and self._moves(files, begun):
                self._undo_move(files, begun.pop())
            # A batch that has ended has begun.
            whole = [batch for batch in begun if f"offsets/{batch}" not in removed]
            removed += [
                f"commits/{batch}"
                for batch in ended[-1:]
                if batch not in whole or not self._whole(files, f"commits/{batch}")
            ]
            if begun and self._json(files, self._child("metadata")) is None:
                raise CheckpointTornError(self.folder, "Spark's file `metadata` is gone or was torn")
            for name in removed:
                files.delete(self._child(name), False)
            # What Spark says of it holds, should the note not have been written any more.
            contents = self.contents()
            if contents is not None and whole and (tasks := self._tasks(files, whole[-1])) != contents.parallelism:
                self._write(files, replace(contents, parallelism=tasks))
        return removed

    def repartition(self, tasks: int, told: Told) -> None:
        """Move the state, of which no batch may be under way, to as many partitions. Killed in between, it is undone.

        Tells how many tasks of Spark's are done of how many. Spark notes it as a batch of its own.

        Raises CheckpointFolderError.
        """
        with self._files() as files:
            contents = self.contents()
            assert contents is not None, "the checkpoint was claimed"
            # A query without operators has no state, of which Spark would move none but fail.
            if self._numbers(files, "commits") and files.exists(self._child("state")):
                with tasks_told(self._spark, told):
                    self._spark._streamingCheckpointManager.repartition(self.folder, tasks)
            self._write(files, replace(contents, parallelism=tasks))

    def settle(self) -> None:
        """Let Spark's notes on state, which have whole paths, say where the folder is now; it may have been moved.

        Raises CheckpointFolderError.
        """
        with self._files() as files:
            root = str(files.makeQualified(self._path))
            for note in files.globStatus(self._child("state/*/_metadata/v2/[0-9]*")) or ():
                name = str(note.getPath()).removeprefix(f"{root}/")
                before = self._text(files, note.getPath())
                after = re.sub(r'"[^"]*(/state/\d+/_stateSchema/)', rf'"{root}\1', before)
                if after != before:
                    self._put(files, name, after)

    def identity(self) -> str:
        """Spark's id of the checkpoint, nothing before there is one. Raises CheckpointFolderError."""
        with self._files() as files:
            return str((self._json(files, self._child("metadata")) or {"id": ""})["id"])

    def is_strange(self, last: Progress) -> bool:
        """Whether a run that came after all that have left a trace here has written, from another checkpoint, `last`.

        Raises CheckpointFolderError.
        """
        return self.identity() not in {"", last.checkpoint} and last.run > max(self.runs(), default="")

    def back(self) -> int | None:
        """Have the batch that has ended last done again, for the state that it left is not whole; None if it cannot be.

        Those that were begun after it are undone: what of them is written is replayed. Raises CheckpointFolderError.
        """
        with self._files() as files:
            ended, begun = (self._numbers(files, log) for log in ("commits", "offsets"))
            if not ended or ended[-1] not in begun or (ended[-1] > 0 and ended[-1] - 1 not in begun):
                return None
            # Only state as it was read leads to state that was moved.
            if self._moves(files, [batch for batch in begun if batch <= ended[-1]]):
                return None
            batch = ended[-1]
            # The last first: those that are left follow each other at any time.
            for later in reversed(begun[begun.index(batch) + 1 :]):
                files.delete(self._child(f"offsets/{later}"), False)
            self._drop_state(files, batch)
            files.delete(self._child(f"commits/{batch}"), False)
            return batch

    def undo(self) -> None:
        """Undo the batch that was begun last and has not ended. Raises CheckpointFolderError."""
        with self._files() as files:
            (batch,) = self._numbers(files, "offsets")[-1:]
            self._drop_state(files, batch)
            files.delete(self._child(f"offsets/{batch}"), False)

    def last(self) -> Offset | None:
        """The end of the batch that was begun last, None before the first one. Raises CheckpointFolderError."""
        with self._files() as files:
            begun = self._numbers(files, "offsets")
            if not begun:
                return None
            name = f"offsets/{begun[-1]}"
            end = self._end(files, name)
            if end.number < 0:
                # An earlier release has logged it, for which Spark had the numbers and times.
                contents = self.contents()
                assert contents is not None, "the checkpoint was claimed"
                *kept, _ = self._text(files, self._child(name)).splitlines()
                now = json.loads(kept[1])["batchTimestampMs"]
                end = replace(end, number=begun[-1] + contents.ahead, now=now)
                self._put(files, name, "\n".join([*kept, json.dumps(end.to_json())]))
            return end

    def rests(self) -> bool:
        """Whether all that was begun has ended. Raises CheckpointFolderError."""
        with self._files() as files:
            ended, begun = (self._numbers(files, log) for log in ("commits", "offsets"))
            return ended[-1:] == begun[-1:]

    def position(self) -> Offset | None:
        """Where the last batch that has ended did so, None before the first one. Raises CheckpointFolderError."""
        with self._files() as files:
            ended = self._numbers(files, "commits")
            if not ended:
                return None
            return self._end(files, f"offsets/{ended[-1]}")

    def copy(self, to: str, told: Told = lambda *_: None) -> int:
        """Copy what is needed to go on from the last batch that has ended, the number of which this gives.

        Spark may be at work here meanwhile, and delete what is too old. Tells how many files there are of how many.

        Raises:
            SavepointError: There is no state that is whole.
            CheckpointFolderError: A folder cannot be read or written, or something is gone before it was copied.
        """
        with self._files() as files:
            ended = self._numbers(files, "commits")
            if not ended:
                raise SavepointError(f"the checkpoint {self.folder} has no batch that has ended: try again later")
            found = self._names(files)
            # What a snapshot names is there before it is: what has come since the first look may belong to one.
            blobs = {name for name in self._names(files) if "/SSTs/" in name}
            target = self._jvm.org.apache.hadoop.fs.Path(to)
            there = target.getFileSystem(self._hadoop)
            wanted = sorted(blobs | {name for name in found if _version(name) <= ended[-1]})
            for number, name in enumerate(wanted):
                told(number, len(wanted))
                path = self._jvm.org.apache.hadoop.fs.Path(target, name)
                self._jvm.org.apache.hadoop.fs.FileUtil.copy(
                    files, self._child(name), there, path, False, True, self._hadoop
                )
            return ended[-1]

    def _drop_state(self, files: Any, batch: int) -> None:
        """Delete the state that was written from this batch on: on a local disk Spark leaves a file that is there."""
        for each in files.globStatus(self._child("state/*/*/[0-9]*.*")) or ():
            version = str(each.getPath().getName()).partition(".")[0]
            # After the first batch, whose number is 0, it is 1.
            if version.isdigit() and int(version) > batch:
                files.delete(each.getPath(), False)

    def _undo_move(self, files: Any, batch: int) -> None:
        """Undo a batch in which state was to be moved."""
        self._drop_state(files, batch)
        # From which batch on an operator keeps what in how many partitions.
        for each in files.globStatus(self._child(f"state/*/_metadata/v2/{batch}")) or ():
            files.delete(each.getPath(), False)
        files.delete(self._child(f"offsets/{batch}"), False)

    def _moves(self, files: Any, begun: Sequence[int]) -> bool:
        """Whether the last of these batches is one in which state is moved to other partitions."""
        return len(begun) > 1 and len({self._tasks(files, batch) for batch in begun[-2:]}) > 1

    def _tasks(self, files: Any, batch: int) -> int:
        """In how many partitions state lies in a batch."""
        _, kept, *_ = self._text(files, self._child(f"offsets/{batch}")).splitlines()
        return int(json.loads(kept)["conf"][_PARTITIONS])

    def _whole(self, files: Any, name: str) -> bool:
        """Whether a file of such a log is all there: a version, and one or more lines of JSON."""
        version, *lines = self._text(files, self._child(name)).splitlines() or [""]
        try:
            return version.startswith("v") and bool([json.loads(line) for line in lines])
        except json.JSONDecodeError:
            return False

    def _end(self, files: Any, name: str) -> Offset:
        """Where a batch ends, by such a file: Spark's version, what it keeps of the batch, a line for each source."""
        return Offset.from_json(json.loads(self._text(files, self._child(name)).splitlines()[-1]))


def queries(spark: SparkSession, folder: str) -> dict[str, Contents]:
    """What the checkpoints below a job's folder are of, by the names of their queries. Raises CheckpointFolderError."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(folder)
    try:
        files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        there = files.listStatus(path) if files.exists(path) else ()
        names = [str(each.getPath().getName()) for each in there if each.isDirectory()]
    except Py4JJavaError as error:
        raise CheckpointFolderError(folder, first_line(error)) from None
    found = {name: Checkpoint(spark, f"{folder}/{name}").contents() for name in sorted(names)}
    return {name: contents for name, contents in found.items() if contents is not None}


_OF_A_BATCH = re.compile(r"(?:offsets|commits|state/\d+/_metadata/v2)/(\d+)")
_AFTER_A_BATCH = re.compile(r"state/\d+/\d+/(?:.*/)?(\d+)\.\w+")


def _version(name: str) -> int:
    """The batch that a file is of, or, of state, the one that led to it; -1 if it is of all of them."""
    if found := _OF_A_BATCH.fullmatch(name):
        return int(found[1])
    found = _AFTER_A_BATCH.fullmatch(name)
    return -1 if found is None else int(found[1]) - 1
