# ruff: noqa: SLF001 - Spark's own file systems are to be had through its gateway only
"""The checkpoint folder of one query: Spark's own files, and beside them the fingerprint of the plan that wrote them.

Spark's file systems are used, so that the folder may lie wherever Spark can keep a checkpoint.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from service.plan.fingerprint import Fingerprint, differences
from service.run.errors import CheckpointMismatchError

_FILE = "rowkind.json"
_VERSION = 1


def claim(spark: SparkSession, folder: str, facts: Fingerprint, *, reset: bool) -> None:
    """Make sure that the checkpoint in `folder` was written by a plan with these facts, and note them if it is new.

    With `reset`, whatever is there is deleted first: state, offsets and all.

    Raises:
        CheckpointMismatchError: The checkpoint belongs to another plan; the message lists every fact that differs.
    """
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(folder)
    note = jvm.org.apache.hadoop.fs.Path(path, _FILE)
    files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if reset and files.exists(path):
        files.delete(path, True)
    if files.exists(note):
        before = json.loads(_read(jvm, files, note))
        if changed := differences(before["facts"], facts):
            raise CheckpointMismatchError(folder, changed)
        return
    if files.exists(path) and files.listStatus(path):
        raise CheckpointMismatchError(folder, ["the folder holds files of something else"])
    files.mkdirs(path)
    stream = files.create(note, True)
    stream.write(bytearray(json.dumps({"version": _VERSION, "facts": facts}, indent=2).encode()))
    stream.close()


def _read(jvm: Any, files: Any, path: Any) -> str:
    stream = files.open(path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
