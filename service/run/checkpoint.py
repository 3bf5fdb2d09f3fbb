# ruff: noqa: SLF001 - Spark's own file systems are to be had through its gateway only
"""The checkpoint folder of one query: Spark's own files, and beside them notes of ours.

- `rowkind.json`: the sinks whose plans wrote the state, each with its fingerprint; parallelism, how many stages there
  are, and which task writes what.
- `rowkind.run.<name>`: empty; the name of the run of the job that has taken the folder. A later run adds its own and
  removes the others, by which an earlier one that is still alive sees that it has been replaced.
- `rowkind.aside`: files of Spark's log `offsets`, of batches that wait to be done again.

Spark's file systems are used, so that the folder may lie wherever Spark can keep a checkpoint. Each note appears whole
or not at all, whatever moment the process is killed at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it ships no type information
from pyspark.sql import SparkSession

from rowkind.service.kafka.offsets import Offset, between
from rowkind.service.kafka.progress import Progress, next_run
from rowkind.service.plan.fingerprint import differences
from rowkind.service.run.contents import VERSION, Contents
from rowkind.service.run.errors import (
    CheckpointFolderError,
    CheckpointMismatchError,
    CheckpointTornError,
    SavepointError,
)
from rowkind.service.run.folder import Folder, reason

_FILE = "rowkind.json"
_DRAFT = f"{_FILE}.tmp"
_RUN = "rowkind.run."
_ASIDE = "rowkind.aside"


class Checkpoint(Folder):
    """The folder of one query, in the hands of this run of the job. `run` is the run's name, once it is claimed."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        super().__init__(spark, folder)
        self.run = ""

    def contents(self) -> Contents | None:
        """What the checkpoint is of, None if there is none. Raises CheckpointFolderError."""
        with self._files() as files:
            # A run that was killed between the two has left the draft alone.
            for note in (self._child(_FILE), self._child(_DRAFT)):
                if (said := self._json(files, note)) is not None:
                    if said["version"] > VERSION:
                        raise CheckpointFolderError(self.folder, "a later version of Rowkind has written it")
                    return Contents(**said)
        return None

    def claim(self, contents: Contents, *, after: str = "") -> Contents:
        """Make sure that what is there was written by these plans, and take it over from earlier runs.

        Sinks that are gone may be gone. `after` is the name of the last run of which a trace was found elsewhere. Gives
        what the checkpoint is of now.

        Raises:
            CheckpointMismatchError: The checkpoint belongs to other plans; the message lists every fact that differs.
            CheckpointTornError: Spark has written here, and there is no note that says what.
            CheckpointFolderError: The folder cannot be read or written.
        """
        with self._files() as files:
            runs = self.runs()
            if (before := self.contents()) is not None:
                kept = {name: facts for name, facts in before.sinks.items() if name in contents.sinks}
                if changed := differences(replace(before, sinks=kept).facts, contents.facts):
                    raise CheckpointMismatchError(self.folder, changed)
                contents = contents.after(before)
            elif self._begun(files):
                raise CheckpointTornError(self.folder, f"{_FILE} is gone or was torn")
            elif files.exists(self._path) and any(not _is_ours(each) for each in files.listStatus(self._path)):
                raise CheckpointMismatchError(self.folder, ["the folder holds files of something else"])
            if before != contents:
                self._write(files, contents)
            self.run = next_run(after, *runs)
            self.sign(self.run)
            for earlier in self.runs():
                if earlier < self.run:
                    files.delete(self._child(_RUN + earlier), False)
        return contents

    def sign(self, run: str) -> None:
        """Leave the trace of a run. Raises CheckpointFolderError."""
        with self._files() as files:
            files.create(self._child(_RUN + run), True).close()

    def keep(self, sinks: Collection[str]) -> None:
        """Note that no other sinks than these are left; others may begin elsewhere. Raises CheckpointFolderError."""
        with self._files() as files:
            if (before := self.contents()) is not None:
                left = {name: facts for name, facts in before.sinks.items() if name in sinks}
                self._write(files, replace(before, sinks=left))

    def torn(self) -> bool:
        """Whether Spark has written here, and the note that says what is gone. Raises CheckpointFolderError."""
        with self._files() as files:
            return self._begun(files) and self.contents() is None

    def filled(self) -> None:
        """Note that the state of the query is full, and its result where it belongs. Raises CheckpointFolderError."""
        with self._files() as files:
            if (before := self.contents()) is not None:
                self._write(files, replace(before, filling=""))

    def mend(self) -> list[str]:
        """Remove what Spark wrote last and a crash of the machine has torn, so that the batch is done again.

        That one has ended is found out by doing it again. Where it begins and ends is decided anew, or told by what was
        written of it (`catch_up`). Gives the files removed.

        Raises:
            CheckpointTornError: Nobody knows whose checkpoint it is any more.
            CheckpointFolderError: The folder cannot be read or written.
        """
        with self._files() as files:
            removed = []
            ended, begun, aside = (self._numbers(files, log) for log in ("commits", "offsets", _ASIDE))
            removed += [f"{_ASIDE}/{batch}" for batch in aside if not self._whole(files, f"{_ASIDE}/{batch}")]
            if begun and not self._whole(files, f"offsets/{begun[-1]}"):
                removed.append(f"offsets/{begun[-1]}")
                self._forget_state(files, begun[-1])
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
        return removed

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

    def catch_up(self, written: Progress, rows: int) -> int:
        """Put down to be done again what was written after the last batch that is known here; how many batches that is.

        The checkpoint is an older copy of itself, or has lost its end. What it knows ends where batch N does. Batch
        `written`, of which only a part may be written, is done again as it was, on state that is brought to where it
        began by batches of about so many `rows`, of which nothing is written.

        Raises:
            CheckpointTornError: It is not known where the first of them began.
            CheckpointFolderError: The folder cannot be read or written.
        """
        with self._files() as files:
            contents = self.contents()
            assert contents is not None, "the checkpoint was claimed"
            known = {batch: log for log in ("offsets", _ASIDE) for batch in self._numbers(files, log)}
            last = max(known, default=-1)
            if written.batch <= last + contents.ahead:
                return 0
            end = Offset.from_json(json.loads(written.extent))
            at, kept = end.begin, self._kept(contents)
            if last >= 0:
                _, kept, *_ = self._text(files, self._child(f"{known[last]}/{last}")).splitlines()
                at = self._end(files, f"{known[last]}/{last}").at
            elif written.batch > 0:
                raise CheckpointTornError(self.folder, "of all batches that were written it knows none")
            steps = [*between(at, replace(end, at=end.begin), rows), end]
            # First, because the number of the last step must be right in any case.
            self._write(files, replace(contents, ahead=written.batch - last - len(steps)))
            files.mkdirs(self._child(_ASIDE))
            said = json.loads(kept)
            since = said["batchTimestampMs"] or written.now
            for number, step in enumerate(steps, 1):
                # With a TTL it matters when a row came: about then, as far as that is known.
                said["batchTimestampMs"] = since + (written.now - since) * number // len(steps)
                self._put(files, f"{_ASIDE}/{last + number}", f"v1\n{json.dumps(said)}\n{json.dumps(step.to_json())}")
        return len(steps)

    def back(self) -> int | None:
        """Have the batch that has ended last done again, for the state that it left is not whole; None if it cannot be.

        Where those begin and end that were begun after it is kept aside, until it has been done again (`forward`): of
        them too, some may be written. Raises CheckpointFolderError.
        """
        with self._files() as files:
            ended, begun = (self._numbers(files, log) for log in ("commits", "offsets"))
            if not ended or ended[-1] not in begun or (ended[-1] > 0 and ended[-1] - 1 not in begun):
                return None
            batch = ended[-1]
            files.mkdirs(self._child(_ASIDE))
            for later in begun[begun.index(batch) + 1 :]:
                files.rename(self._child(f"offsets/{later}"), self._child(f"{_ASIDE}/{later}"))
            self._forget_state(files, batch)
            files.delete(self._child(f"commits/{batch}"), False)
            return batch

    def forward(self) -> bool:
        """Whether more batches wait to be done again than the one that is next. Raises CheckpointFolderError."""
        with self._files() as files:
            waiting, ended, begun = (self._numbers(files, log) for log in (_ASIDE, "commits", "offsets"))
            if waiting and ended[-1:] == begun[-1:]:
                batch = waiting.pop(0)
                files.rename(self._child(f"{_ASIDE}/{batch}"), self._child(f"offsets/{batch}"))
            return bool(waiting)

    def position(self) -> Offset | None:
        """Where the last batch that has ended did so, None before the first one. Raises CheckpointFolderError."""
        with self._files() as files:
            ended = self._numbers(files, "commits")
            if not ended:
                return None
            return self._end(files, f"offsets/{ended[-1]}")

    def copy(self, to: str) -> int:
        """Copy what is needed to go on from the last batch that has ended, the number of which this gives.

        Spark may be at work here meanwhile, and delete what is too old.

        Raises:
            SavepointError: There is no state that is whole.
            CheckpointFolderError: A folder cannot be read or written, or something is gone before it was copied.
        """
        with self._files() as files:
            ended = self._numbers(files, "commits")
            if not ended or self._numbers(files, _ASIDE):
                raise SavepointError(
                    f"the checkpoint {self.folder} has no batch that has ended, or does some again: try again later"
                )
            found = self._names(files)
            # What a snapshot names is there before it is: what has come since the first look may belong to one.
            blobs = {name for name in self._names(files) if "/SSTs/" in name}
            target = self._jvm.org.apache.hadoop.fs.Path(to)
            there = target.getFileSystem(self._hadoop)
            for name in sorted(blobs | {name for name in found if _version(name) <= ended[-1]}):
                path = self._jvm.org.apache.hadoop.fs.Path(target, name)
                self._jvm.org.apache.hadoop.fs.FileUtil.copy(
                    files, self._child(name), there, path, False, True, self._hadoop
                )
            return ended[-1]

    def delete(self) -> None:
        """Delete whatever is there. A run that has it stops. Raises CheckpointFolderError."""
        with self._files() as files:
            files.delete(self._path, True)

    def runs(self) -> list[str]:
        """The names of the runs that have taken the folder and left a trace. Raises CheckpointFolderError."""
        with self._files() as files:
            found = files.globStatus(self._child(f"{_RUN}*")) or ()
            return [each.getPath().getName().removeprefix(_RUN) for each in found]

    def held(self) -> bool:
        """Whether no later run has taken the folder; also true while that cannot be told."""
        try:
            return max(self.runs(), default="") == self.run
        except CheckpointFolderError:
            return True

    def _begun(self, files: Any) -> bool:
        """Whether Spark has written here."""
        return bool(files.exists(self._child("offsets")))

    def _forget_state(self, files: Any, batch: int) -> None:
        """Delete the state that was written from this batch on: on a local disk Spark leaves a file that is there."""
        for each in files.globStatus(self._child("state/*/*/[0-9]*.*")) or ():
            version = str(each.getPath().getName()).partition(".")[0]
            # After the first batch, whose number is 0, it is 1.
            if version.isdigit() and int(version) > batch:
                files.delete(each.getPath(), False)

    def _whole(self, files: Any, name: str) -> bool:
        """Whether a file of such a log is all there: a version, and one or more lines of JSON."""
        version, *lines = self._text(files, self._child(name)).splitlines() or [""]
        try:
            return version.startswith("v") and bool([json.loads(line) for line in lines])
        except json.JSONDecodeError:
            return False

    def _kept(self, contents: Contents) -> str:
        """What Spark keeps of a batch of a query that has begun none yet, as JSON."""
        spark = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing
        kept = json.loads(str(spark.OffsetSeqMetadata.apply(0, 0, self._spark.conf._jconf).json()))
        kept["conf"]["spark.sql.shuffle.partitions"] = str(contents.parallelism)
        return json.dumps(kept)

    def _end(self, files: Any, name: str) -> Offset:
        """Where a batch ends, by such a file: Spark's version, what it keeps of the batch, a line for each source."""
        return Offset.from_json(json.loads(self._text(files, self._child(name)).splitlines()[-1]))

    def _write(self, files: Any, contents: Contents) -> None:
        self._put(files, _FILE, json.dumps(asdict(contents), indent=2))


def queries(spark: SparkSession, folder: str) -> dict[str, Contents]:
    """What the checkpoints below a job's folder are of, by the names of their queries. Raises CheckpointFolderError."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(folder)
    try:
        files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        there = files.listStatus(path) if files.exists(path) else ()
        names = [str(each.getPath().getName()) for each in there if each.isDirectory()]
    except Py4JJavaError as error:
        raise CheckpointFolderError(folder, reason(error)) from None
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


def _is_ours(status: Any) -> bool:
    return str(status.getPath().getName()).lstrip(".").startswith("rowkind.")
