# ruff: noqa: SLF001 - Spark's own file systems are available only through its gateway
"""The checkpoint of one query: Spark's logs of batches, the state, and the repair of logs and state.

Before a batch runs, Spark records in `offsets` where the batch begins and ends. Afterwards, Spark records in `commits`
that the batch has ended. `state` contains the operators' state, by batch and partition.
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
    """The checkpoint of one query, as used by this run of the job."""

    def mend(self) -> list[str]:
        """Remove Spark's last writes if a machine crash has damaged them, so that the batch is repeated.

        An unfinished move of the state to other partitions (`repartition`) is undone. A lost commit marker is recovered
        by repeating the batch. Lost offsets are planned again, or replayed if any part of the batch was written
        (`service.checkpoint.replay`). Return the removed files.

        Raises:
            CheckpointTornError: Spark's file with the checkpoint's id is missing or damaged.
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
            # A batch that has ended must have begun.
            whole = [batch for batch in begun if f"offsets/{batch}" not in removed]
            removed += [
                f"commits/{batch}"
                for batch in ended[-1:]
                if batch not in whole or not self._whole(files, f"commits/{batch}")
            ]
            if begun and self._json(files, self._child("metadata")) is None:
                raise CheckpointTornError(self.folder, "Spark's file `metadata` is missing or damaged")
            for name in removed:
                files.delete(self._child(name), False)
            # If a crash prevented the update of the metadata, Spark's number of partitions is the correct one.
            contents = self.contents()
            if contents is not None and whole and (tasks := self._tasks(files, whole[-1])) != contents.parallelism:
                self._write(files, replace(contents, parallelism=tasks))
        return removed

    def repartition(self, tasks: int, told: Told) -> None:
        """Move the state to `tasks` partitions. No batch may be in progress. An interrupted move is undone later.

        `told` receives the numbers of finished tasks and of all tasks. Spark records the move as a separate batch.
        Raises CheckpointFolderError.
        """
        with self._files() as files:
            contents = self.contents()
            assert contents is not None, "the checkpoint was claimed"
            # A query without operators has no state, and Spark would fail because there is nothing to move.
            if self._numbers(files, "commits") and files.exists(self._child("state")):
                with tasks_told(self._spark, told):
                    self._spark._streamingCheckpointManager.repartition(self.folder, tasks)
            self._write(files, replace(contents, parallelism=tasks))

    def settle(self) -> None:
        """Update the absolute paths in Spark's state metadata, because the folder may have been moved.

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
        """Return the id that Spark gave to the checkpoint, or "" if there is none yet. Raises CheckpointFolderError."""
        with self._files() as files:
            return str((self._json(files, self._child("metadata")) or {"id": ""})["id"])

    def is_strange(self, last: Progress) -> bool:
        """Return whether `last` was written from another checkpoint, by a run later than all runs recorded here.

        Raises CheckpointFolderError.
        """
        return self.identity() not in {"", last.checkpoint} and last.run > max(self.runs(), default="")

    def back(self) -> int | None:
        """Undo the last ended batch, because its state is damaged. Return the batch, or None if this is impossible.

        Later batches that have begun are undone too. They are replayed if any part of them was written.
        Raises CheckpointFolderError.
        """
        with self._files() as files:
            ended, begun = (self._numbers(files, log) for log in ("commits", "offsets"))
            if not ended or ended[-1] not in begun or (ended[-1] > 0 and ended[-1] - 1 not in begun):
                return None
            # Moved state can be derived only from the state before the move, so a move is not repeated.
            if self._moves(files, [batch for batch in begun if batch <= ended[-1]]):
                return None
            batch = ended[-1]
            # Delete the last batch first, so that the remaining batches are consecutive at any time.
            for later in reversed(begun[begun.index(batch) + 1 :]):
                files.delete(self._child(f"offsets/{later}"), False)
            self._drop_state(files, batch)
            files.delete(self._child(f"commits/{batch}"), False)
            return batch

    def undo(self) -> None:
        """Undo the last batch, which has begun but not ended. Raises CheckpointFolderError."""
        with self._files() as files:
            (batch,) = self._numbers(files, "offsets")[-1:]
            self._drop_state(files, batch)
            files.delete(self._child(f"offsets/{batch}"), False)

    def last(self) -> Offset | None:
        """Return the end of the last batch that has begun, or None if none has. Raises CheckpointFolderError."""
        with self._files() as files:
            begun = self._numbers(files, "offsets")
            if not begun:
                return None
            name = f"offsets/{begun[-1]}"
            end = self._end(files, name)
            if end.number < 0:
                # An earlier release logged the batch. Batch numbers and times were then in Spark's part of the log.
                contents = self.contents()
                assert contents is not None, "the checkpoint was claimed"
                *kept, _ = self._text(files, self._child(name)).splitlines()
                now = json.loads(kept[1])["batchTimestampMs"]
                end = replace(end, number=begun[-1] + contents.ahead, now=now)
                self._put(files, name, "\n".join([*kept, json.dumps(end.to_json())]))
            return end

    def rests(self) -> bool:
        """Return whether every batch that has begun has also ended. Raises CheckpointFolderError."""
        with self._files() as files:
            ended, begun = (self._numbers(files, log) for log in ("commits", "offsets"))
            return ended[-1:] == begun[-1:]

    def position(self) -> Offset | None:
        """Return the end of the last ended batch, or None if no batch has ended. Raises CheckpointFolderError."""
        with self._files() as files:
            ended = self._numbers(files, "commits")
            if not ended:
                return None
            return self._end(files, f"offsets/{ended[-1]}")

    def copy(self, to: str, told: Told = lambda *_: None) -> int:
        """Copy everything needed to continue from the last ended batch, and return the number of that batch.

        Spark may be running at the same time, and may delete old files. `told` receives the numbers of copied files and
        of all files.

        Raises:
            SavepointError: No batch has ended yet.
            CheckpointFolderError: A folder cannot be read or written, or a file was deleted before it was copied.
        """
        with self._files() as files:
            ended = self._numbers(files, "commits")
            if not ended:
                raise SavepointError(f"the checkpoint {self.folder} has no completed batch yet: try again later")
            found = self._names(files)
            # A snapshot's blobs are written before the snapshot itself. A blob that appeared after the first listing
            # may belong to a snapshot in that listing.
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
        """Delete the state of the given and all later batches.

        Spark does not overwrite existing files on a local disk.
        """
        for each in files.globStatus(self._child("state/*/*/[0-9]*.*")) or ():
            version = str(each.getPath().getName()).partition(".")[0]
            # State versions are one ahead of batches: version 1 follows batch 0.
            if version.isdigit() and int(version) > batch:
                files.delete(each.getPath(), False)

    def _undo_move(self, files: Any, batch: int) -> None:
        """Undo a batch that was meant to move state."""
        self._drop_state(files, batch)
        # These files record an operator's number of partitions, starting at a batch.
        for each in files.globStatus(self._child(f"state/*/_metadata/v2/{batch}")) or ():
            files.delete(each.getPath(), False)
        files.delete(self._child(f"offsets/{batch}"), False)

    def _moves(self, files: Any, begun: Sequence[int]) -> bool:
        """Return whether the last of the given batches moves state to other partitions."""
        return len(begun) > 1 and len({self._tasks(files, batch) for batch in begun[-2:]}) > 1

    def _tasks(self, files: Any, batch: int) -> int:
        """Return the state's number of partitions in a batch."""
        _, kept, *_ = self._text(files, self._child(f"offsets/{batch}")).splitlines()
        return int(json.loads(kept)["conf"][_PARTITIONS])

    def _whole(self, files: Any, name: str) -> bool:
        """Return whether a log file is complete, with a version and one or more lines of JSON."""
        version, *lines = self._text(files, self._child(name)).splitlines() or [""]
        try:
            return version.startswith("v") and bool([json.loads(line) for line in lines])
        except json.JSONDecodeError:
            return False

    def _end(self, files: Any, name: str) -> Offset:
        """Return the end of a batch from its log file: Spark's version, Spark's metadata, and a line per source."""
        return Offset.from_json(json.loads(self._text(files, self._child(name)).splitlines()[-1]))


def queries(spark: SparkSession, folder: str) -> dict[str, Contents]:
    """Return the metadata of the checkpoints in a job's folder, by query name. Raises CheckpointFolderError."""
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
    """Return the batch to which a log file or state file belongs, or -1 if the file belongs to all batches."""
    if found := _OF_A_BATCH.fullmatch(name):
        return int(found[1])
    found = _AFTER_A_BATCH.fullmatch(name)
    return -1 if found is None else int(found[1]) - 1
