# ruff: noqa: SLF001 - Spark's own file systems are to be had through its gateway only
"""The checkpoint folder of one query: Spark's own files, and beside them two notes of ours.

- `rowkind.json`: the fingerprint of the plan that wrote the state.
- `rowkind.run.<name>`: empty; the name of the run of the job that has taken the folder. A later run adds its own and
  removes the others, by which an earlier one that is still alive sees that it has been replaced.

Spark's file systems are used, so that the folder may lie wherever Spark can keep a checkpoint. No note is ever
overwritten, and each appears whole or not at all, whatever moment the process is killed at.
"""

from __future__ import annotations

import json
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it ships no type information
from pyspark.sql import SparkSession

from rowkind.service.kafka.progress import next_run
from rowkind.service.plan.fingerprint import Fingerprint, differences
from rowkind.service.run.errors import CheckpointFolderError, CheckpointMismatchError

_FILE = "rowkind.json"
_RUN = "rowkind.run."
_VERSION = 1


class Checkpoint:
    """The folder of one query, in the hands of this run of the job. `run` is the run's name, once it is claimed."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.folder = folder
        self.run = ""
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(folder)
        self._hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def claim(self, facts: Fingerprint, *, reset: bool, after: str = "") -> None:
        """Make sure that what is there was written by a plan with these facts, and take it over from earlier runs.

        With `reset`, whatever is there is deleted first: state, offsets and all. `after` is the name of the last run
        of which a trace was found elsewhere.

        Raises:
            CheckpointMismatchError: The checkpoint belongs to another plan; the message lists every fact that differs.
            CheckpointFolderError: The folder cannot be read or written.
        """
        try:
            files = self._path.getFileSystem(self._hadoop)
            runs = self._runs(files)
            if reset and files.exists(self._path):
                files.delete(self._path, True)
            self._compare(files, facts)
            self.run = next_run(after, *runs)
            files.create(self._child(_RUN + self.run), True).close()
            for earlier in self._runs(files):
                if earlier < self.run:
                    files.delete(self._child(_RUN + earlier), False)
        except Py4JJavaError as error:
            raise CheckpointFolderError(self.folder, _reason(error)) from None

    def held(self) -> bool:
        """Whether no later run has taken the folder; also true while that cannot be told."""
        try:
            return bool(max(self._runs(self._path.getFileSystem(self._hadoop)), default="") == self.run)
        except Py4JJavaError:
            return True

    def _compare(self, files: Any, facts: Fingerprint) -> None:
        note = self._child(_FILE)
        if files.exists(note):
            before = json.loads(self._read(files, note))
            if changed := differences(before["facts"], facts):
                raise CheckpointMismatchError(self.folder, changed)
            return
        if files.exists(self._path) and any(not _is_ours(each) for each in files.listStatus(self._path)):
            raise CheckpointMismatchError(self.folder, ["the folder holds files of something else"])
        draft = self._child(f"{_FILE}.tmp")
        stream = files.create(draft, True)
        stream.write(bytearray(json.dumps({"version": _VERSION, "facts": facts}, indent=2).encode()))
        stream.close()
        files.rename(draft, note)

    def _runs(self, files: Any) -> list[str]:
        found = files.globStatus(self._child(f"{_RUN}*")) or ()
        return [each.getPath().getName().removeprefix(_RUN) for each in found]

    def _child(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def _read(self, files: Any, path: Any) -> str:
        stream = files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()


def _is_ours(status: Any) -> bool:
    return str(status.getPath().getName()).lstrip(".").startswith("rowkind.")


def _reason(error: Py4JJavaError) -> str:
    """The first line of what Java says, without the class."""
    return str(error.java_exception.getMessage() or error.java_exception).partition("\n")[0]
