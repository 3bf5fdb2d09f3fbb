# ruff: noqa: SLF001 - Spark's own file systems are to be had through its gateway only
"""The checkpoint folder of one query: Spark's own files, and beside them two notes of ours.

- `rowkind.json`: the sinks whose plans wrote the state, each with its fingerprint; parallelism, how many stages there
  are, and which task writes what.
- `rowkind.run.<name>`: empty; the name of the run of the job that has taken the folder. A later run adds its own and
  removes the others, by which an earlier one that is still alive sees that it has been replaced.

Spark's file systems are used, so that the folder may lie wherever Spark can keep a checkpoint. Each note appears whole
or not at all, whatever moment the process is killed at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it ships no type information
from pyspark.sql import SparkSession

from rowkind.service.kafka.progress import next_run
from rowkind.service.plan.fingerprint import Fingerprint, differences
from rowkind.service.run.errors import CheckpointFolderError, CheckpointMismatchError

_FILE = "rowkind.json"
_DRAFT = f"{_FILE}.tmp"
_RUN = "rowkind.run."
_VERSION = 1


@dataclass(frozen=True)
class Contents:
    """What a checkpoint is of.

    - `sinks`: the fingerprint of each. `parallelism`, `levels`: how many shards and how many stages there are.
    - `exchange`: rows are shuffled before they are written. `atomic`: one task writes all of them. A batch that was
      written in part is completed by the other tasks, so each row must be in the same one again.
    - `views`: those that stand by themselves, each with the places of the columns that are kept of it.
    - `states`: what the state of each operator is called, by `<sink>.<node>`.
    """

    sinks: Mapping[str, Fingerprint]
    parallelism: int
    levels: int
    exchange: bool = False
    atomic: bool = False
    views: Mapping[str, Sequence[int]] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)

    @property
    def facts(self) -> Fingerprint:
        """All facts, by `<sink>.<node>.<fact>`."""
        of_sinks = {f"{sink}.{fact}": value for sink, facts in self.sinks.items() for fact, value in facts.items()}
        return {"parallelism": str(self.parallelism), "atomic": str(self.atomic).lower(), **of_sinks}

    def after(self, before: Self) -> Self:
        """These, where a checkpoint has more stages or a shuffle: it had sinks that are gone, or gone deeper.

        What its states are called stays.
        """
        return replace(
            self,
            levels=max(self.levels, before.levels),
            exchange=self.exchange or before.exchange,
            states={node: before.states.get(node, state) for node, state in self.states.items()},
        )


class Checkpoint:
    """The folder of one query, in the hands of this run of the job. `run` is the run's name, once it is claimed."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.folder = folder
        self.run = ""
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(folder)
        self._hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def contents(self) -> Contents | None:
        """What the checkpoint is of, None if there is none. Raises CheckpointFolderError."""
        try:
            files = self._path.getFileSystem(self._hadoop)
            # A run that was killed between the two has left the draft alone.
            for note in (self._child(_FILE), self._child(_DRAFT)):
                if (said := self._json(files, note)) is not None:
                    said.pop("version")
                    return Contents(**said)
        except Py4JJavaError as error:
            raise CheckpointFolderError(self.folder, _reason(error)) from None
        return None

    def claim(self, contents: Contents, *, reset: bool, after: str = "") -> Contents:
        """Make sure that what is there was written by these plans, and take it over from earlier runs.

        Sinks that are gone may be gone. With `reset`, whatever is there is deleted first: state, offsets and all.
        `after` is the name of the last run of which a trace was found elsewhere. Gives what the checkpoint is of now.

        Raises:
            CheckpointMismatchError: The checkpoint belongs to other plans; the message lists every fact that differs.
            CheckpointFolderError: The folder cannot be read or written.
        """
        try:
            files = self._path.getFileSystem(self._hadoop)
            runs = self._runs(files)
            if reset and files.exists(self._path):
                files.delete(self._path, True)
            if (before := self.contents()) is not None:
                kept = {name: facts for name, facts in before.sinks.items() if name in contents.sinks}
                if changed := differences(replace(before, sinks=kept).facts, contents.facts):
                    raise CheckpointMismatchError(self.folder, changed)
                contents = contents.after(before)
            elif files.exists(self._path) and any(not _is_ours(each) for each in files.listStatus(self._path)):
                raise CheckpointMismatchError(self.folder, ["the folder holds files of something else"])
            if before != contents:
                self._write(files, contents)
            self.run = next_run(after, *runs)
            files.create(self._child(_RUN + self.run), True).close()
            for earlier in self._runs(files):
                if earlier < self.run:
                    files.delete(self._child(_RUN + earlier), False)
        except Py4JJavaError as error:
            raise CheckpointFolderError(self.folder, _reason(error)) from None
        return contents

    def delete(self) -> None:
        """Delete whatever is there. A run that has it stops. Raises CheckpointFolderError."""
        try:
            self._path.getFileSystem(self._hadoop).delete(self._path, True)
        except Py4JJavaError as error:
            raise CheckpointFolderError(self.folder, _reason(error)) from None

    def held(self) -> bool:
        """Whether no later run has taken the folder; also true while that cannot be told."""
        try:
            return bool(max(self._runs(self._path.getFileSystem(self._hadoop)), default="") == self.run)
        except Py4JJavaError:
            return True

    def _write(self, files: Any, contents: Contents) -> None:
        note, draft = self._child(_FILE), self._child(_DRAFT)
        stream = files.create(draft, True)
        stream.write(bytearray(json.dumps({"version": _VERSION, **asdict(contents)}, indent=2).encode()))
        stream.close()
        # A file system may refuse to rename onto what is there.
        files.delete(note, False)
        files.rename(draft, note)

    def _runs(self, files: Any) -> list[str]:
        found = files.globStatus(self._child(f"{_RUN}*")) or ()
        return [each.getPath().getName().removeprefix(_RUN) for each in found]

    def _child(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def _json(self, files: Any, path: Any) -> Any:
        """A note, None where it is not there or is not whole."""
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return json.loads(str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")))
        except json.JSONDecodeError:
            return None
        finally:
            stream.close()


def queries(spark: SparkSession, folder: str) -> dict[str, Contents]:
    """What the checkpoints below a job's folder are of, by the names of their queries. Raises CheckpointFolderError."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(folder)
    try:
        files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        there = files.listStatus(path) if files.exists(path) else ()
        names = [str(each.getPath().getName()) for each in there if each.isDirectory()]
    except Py4JJavaError as error:
        raise CheckpointFolderError(folder, _reason(error)) from None
    found = {name: Checkpoint(spark, f"{folder}/{name}").contents() for name in sorted(names)}
    return {name: contents for name, contents in found.items() if contents is not None}


def _is_ours(status: Any) -> bool:
    return str(status.getPath().getName()).lstrip(".").startswith("rowkind.")


def _reason(error: Py4JJavaError) -> str:
    """The first line of what Java says, without the class."""
    return str(error.java_exception.getMessage() or error.java_exception).partition("\n")[0]
