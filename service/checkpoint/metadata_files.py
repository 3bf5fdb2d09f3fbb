"""Our notes in the checkpoint folder of a query, beside Spark's own files.

- `rowkind.json`: the sinks whose plans wrote the state, each with its fingerprint; how many shards, partitions and
  stages there are, and which task writes what.
- `rowkind.run.<name>`: empty; the name of the run of the job that has taken the folder. A later run adds its own and
  removes the others, by which an earlier one that is still alive sees that it has been replaced.
- `rowkind.topics.json`: the topics that the query writes, as they were when it last began or ended
  (`service.checkpoint.written_topics`).
- `rowkind.failure.json`: what has ended the query last, for the status page of the next run.

Spark's file systems are used, so that the folder may lie wherever Spark can keep a checkpoint. Each note appears whole
or not at all, whatever moment the process is killed at.
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
    """What the folder of a query is of, and whose it is. `run` is the name of this run, once it is claimed."""

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
                    return Contents.of(said)
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
                if changed := contents.differs(replace(before, sinks=kept)):
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

    def excuse(self, rows: Collection[str]) -> None:
        """Note that these rows are left out where an expression fails on them. Raises CheckpointFolderError."""
        with self._files() as files:
            if (before := self.contents()) is not None:
                self._write(files, replace(before, excused=sorted({*before.excused, *rows})))

    def topics(self) -> dict[str, TopicRecord]:
        """The topics that the query writes, as they were noted last. Raises CheckpointFolderError."""
        with self._files() as files:
            said = self._json(files, self._child(_TOPICS)) or {"topics": {}}
            return {name: TopicRecord.from_json(topic) for name, topic in said["topics"].items()}

    def noted_ms(self) -> float:
        """When the query last ended in order, Unix time in ms; 0 if it never did. Raises CheckpointFolderError."""
        with self._files() as files:
            return float((self._json(files, self._child(_TOPICS)) or {"at": 0})["at"])

    def note_topics(self, topics: Mapping[str, TopicRecord], at_ms: float) -> None:
        """Note the topics that the query writes, as they are, and when it last ran. Raises CheckpointFolderError."""
        with self._files() as files:
            said = {name: topic.to_json() for name, topic in sorted(topics.items())}
            self._put(files, _TOPICS, json.dumps({"at": at_ms, "topics": said}, indent=1))

    def leave_word(self, incident: Incident) -> None:
        """Note what ends the query now. Raises CheckpointFolderError."""
        with self._files() as files:
            self._put(files, _FAILURE, json.dumps(asdict(incident)))

    def last_failure(self) -> Incident | None:
        """What has ended the query last, as far as it could be noted. Raises CheckpointFolderError."""
        with self._files() as files:
            said = self._json(files, self._child(_FAILURE))
            return None if said is None else Incident(**said)

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

    def _write(self, files: Any, contents: Contents) -> None:
        self._put(files, _FILE, json.dumps(asdict(contents), indent=2))


def _is_ours(status: Any) -> bool:
    return str(status.getPath().getName()).lstrip(".").startswith("rowkind.")
