"""Rowkind's metadata files in a query's checkpoint folder, next to Spark's own files.

- `rowkind.json`: the sinks whose plans wrote the state, each with its fingerprint; the numbers of shards, partitions
  and stages; and how rows are distributed among write tasks.
- `rowkind.run.<name>`: an empty file, named after the run of the job that has claimed the folder. A later run adds its
  own file and removes the others. An earlier run that is still alive thus detects that it has been replaced.
- `rowkind.topics.json`: the topics to which the query writes, as they were when the query last began or ended
  (`service.checkpoint.written_topics`).
- `rowkind.failure.json`: the failure that last ended the query, for the status page of the next run.

The files are accessed through Spark's file systems, so the folder may be wherever Spark can keep a checkpoint. Each
file appears completely or not at all, even if the process is killed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any

from pyspark.sql import SparkSession

from rowkind.service.checkpoint.checkpoint_metadata import VERSION, Contents
from rowkind.service.checkpoint.remote_folder import Folder
from rowkind.service.kafka.progress import next_run
from rowkind.service.kafka.topic_record import TopicRecord
from rowkind.service.monitoring.status import Incident
from rowkind.service.query.errors import CheckpointFolderError, CheckpointMismatchError, CheckpointTornError

_FILE = "rowkind.json"
_DRAFT = f"{_FILE}.tmp"
_RUN = "rowkind.run."
_FAILURE = "rowkind.failure.json"
_TOPICS = "rowkind.topics.json"


class Notes(Folder):
    """The metadata files in a query's folder. `run`: the name of this run, once it has claimed the folder."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        super().__init__(spark, folder)
        self.run = ""

    def contents(self) -> Contents | None:
        """Return the checkpoint's metadata, or None if there is none. Raises CheckpointFolderError."""
        with self._files() as files:
            # A run that was killed between the deletion and the renaming has left only the draft.
            for note in (self._child(_FILE), self._child(_DRAFT)):
                if (said := self._json(files, note)) is not None:
                    if said["version"] > VERSION:
                        raise CheckpointFolderError(self.folder, "it was written by a later version of Rowkind")
                    return Contents.of(said)
        return None

    def claim(self, contents: Contents, *, after: str = "") -> Contents:
        """Check that the given plans wrote the checkpoint, and claim the checkpoint from earlier runs.

        The checkpoint may have sinks that were removed from the job. `after`: the last run recorded elsewhere. Return
        the checkpoint's new metadata.

        Raises:
            CheckpointMismatchError: The checkpoint belongs to other plans. The message lists every fact that differs.
            CheckpointTornError: Spark has written to the folder, but there is no metadata.
            CheckpointFolderError: The folder cannot be read or written.
        """
        with self._files() as files:
            runs = self.runs()
            if (before := self.contents()) is not None:
                kept = {name: facts for name, facts in before.sinks.items() if name in contents.sinks}
                if changed := contents.differs(replace(before, sinks=kept)):
                    raise CheckpointMismatchError(self.folder, changed)
                contents = contents.after(before)
            elif self._begun(files):
                raise CheckpointTornError(self.folder, f"{_FILE} is missing or damaged")
            elif files.exists(self._path) and any(not _is_ours(each) for each in files.listStatus(self._path)):
                raise CheckpointMismatchError(self.folder, ["the folder has files that do not belong to a checkpoint"])
            if before != contents:
                self._write(files, contents)
            self.run = next_run(after, *runs)
            self.sign(self.run)
            for earlier in self.runs():
                if earlier < self.run:
                    files.delete(self._child(_RUN + earlier), False)
        return contents

    def sign(self, run: str) -> None:
        """Record a run in the folder. Raises CheckpointFolderError."""
        with self._files() as files:
            files.create(self._child(_RUN + run), True).close()

    def keep(self, sinks: Collection[str]) -> None:
        """Record that only the given sinks remain in this checkpoint. Raises CheckpointFolderError."""
        with self._files() as files:
            if (before := self.contents()) is not None:
                left = {name: facts for name, facts in before.sinks.items() if name in sinks}
                self._write(files, replace(before, sinks=left))

    def torn(self) -> bool:
        """Return whether Spark has written to the folder but the metadata is lost. Raises CheckpointFolderError."""
        with self._files() as files:
            return self._begun(files) and self.contents() is None

    def filled(self) -> None:
        """Record that the query's state is full and its result topics are up to date. Raises CheckpointFolderError."""
        with self._files() as files:
            if (before := self.contents()) is not None:
                self._write(files, replace(before, filling=""))

    def excuse(self, rows: Collection[str]) -> None:
        """Record that the given rows are left out if an expression fails on them. Raises CheckpointFolderError."""
        with self._files() as files:
            if (before := self.contents()) is not None:
                self._write(files, replace(before, excused=sorted({*before.excused, *rows})))

    def topics(self) -> dict[str, TopicRecord]:
        """Return the last recorded state of the topics to which the query writes. Raises CheckpointFolderError."""
        with self._files() as files:
            said = self._json(files, self._child(_TOPICS)) or {"topics": {}}
            return {name: TopicRecord.from_json(topic) for name, topic in said["topics"].items()}

    def noted_ms(self) -> float:
        """Return when the query last ended normally, in Unix ms, or 0 if never. Raises CheckpointFolderError."""
        with self._files() as files:
            return float((self._json(files, self._child(_TOPICS)) or {"at": 0})["at"])

    def note_topics(self, topics: Mapping[str, TopicRecord], at_ms: float) -> None:
        """Record the state of the query's result topics, and when the query last ran. Raises CheckpointFolderError."""
        with self._files() as files:
            said = {name: topic.to_json() for name, topic in sorted(topics.items())}
            self._put(files, _TOPICS, json.dumps({"at": at_ms, "topics": said}, indent=1))

    def leave_word(self, incident: Incident) -> None:
        """Record the failure that ends the query. Raises CheckpointFolderError."""
        with self._files() as files:
            self._put(files, _FAILURE, json.dumps(asdict(incident)))

    def last_failure(self) -> Incident | None:
        """Return the failure that last ended the query, if it could be recorded. Raises CheckpointFolderError."""
        with self._files() as files:
            said = self._json(files, self._child(_FAILURE))
            return None if said is None else Incident(**said)

    def delete(self) -> None:
        """Delete the folder with everything in it. A run that uses it stops. Raises CheckpointFolderError."""
        with self._files() as files:
            files.delete(self._path, True)

    def runs(self) -> list[str]:
        """Return the names of the runs recorded in the folder. Raises CheckpointFolderError."""
        with self._files() as files:
            found = files.globStatus(self._child(f"{_RUN}*")) or ()
            return [each.getPath().getName().removeprefix(_RUN) for each in found]

    def held(self) -> bool:
        """Return whether this run still owns the folder, as far as is known: no later run has claimed it."""
        try:
            return max(self.runs(), default="") == self.run
        except CheckpointFolderError:
            return True

    def _begun(self, files: Any) -> bool:
        """Return whether Spark has written to the folder."""
        return bool(files.exists(self._child("offsets")))

    def _write(self, files: Any, contents: Contents) -> None:
        self._put(files, _FILE, json.dumps(asdict(contents), indent=2))


def _is_ours(status: Any) -> bool:
    return str(status.getPath().getName()).lstrip(".").startswith("rowkind.")
