# ruff: noqa: SLF001 - Spark's own file systems are available only through its gateway
"""A folder of small files, wherever Spark can store a checkpoint. It is accessed through Spark's file systems."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it ships no type information
from pyspark.sql import SparkSession

from rowkind.service.job.model import Job
from rowkind.service.query.errors import CheckpointFolderError
from rowkind.service.spark.errors import first_line
from rowkind.service.spark.session import session, stopping


@contextmanager
def looking_into(job: Job) -> Iterator[SparkSession]:
    """Yield a minimal session that can access the folders of a job's checkpoints. Raises SparkStartError."""
    assert job.checkpoint is not None, "the command line has checked that the job has a checkpoint"
    # Only Spark has access to all stores where it can keep checkpoints.
    with stopping(session(job.name, master="local[1]", parallelism=1, checkpoint=job.checkpoint)) as spark:
        yield spark


class Folder:
    """A folder. `folder`: the folder's path as written by the user. Paths of files are relative to the folder."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.folder = folder
        self._spark = spark
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(folder)
        self._hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()

    @contextmanager
    def _files(self) -> Iterator[Any]:
        """Yield the folder's file system, and convert its errors to CheckpointFolderError."""
        try:
            yield self._path.getFileSystem(self._hadoop)
        except Py4JJavaError as error:
            raise CheckpointFolderError(self.folder, first_line(error)) from None

    def _names(self, files: Any) -> set[str]:
        """Return the relative paths of all files, except drafts and checksums."""
        root = str(files.makeQualified(self._path))
        found, names = files.listFiles(self._path, True), set()
        while found.hasNext():
            name = str(found.next().getPath()).removeprefix(f"{root}/")
            if not any(part.startswith(".") for part in name.split("/")):
                names.add(name)
        return names

    def _numbers(self, files: Any, log: str) -> list[int]:
        """Return the batches in one of Spark's logs, in order."""
        names = (each.getPath().getName() for each in files.globStatus(self._child(f"{log}/[0-9]*")) or ())
        return sorted(int(name) for name in names if name.isdigit())

    def _put(self, files: Any, name: str, text: str) -> None:
        note, draft = self._child(name), self._child(f"{name}.tmp")
        stream = files.create(draft, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        # Some file systems refuse to rename onto an existing file.
        files.delete(note, False)
        files.rename(draft, note)

    def _child(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def _json(self, files: Any, path: Any) -> Any:
        """Return the content of a JSON file, or None if the file is missing or incomplete."""
        if not files.exists(path):
            return None
        try:
            return json.loads(self._text(files, path))
        except json.JSONDecodeError:
            return None

    def _text(self, files: Any, path: Any) -> str:
        stream = files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
