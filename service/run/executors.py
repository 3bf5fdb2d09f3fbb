"""What the executors of a cluster must have: the interpreter and the libraries that the driver has.

The code of this package is shipped to them, what it is built on is not. A library of another version may read what was
sent otherwise than it was meant, and one that is missing shows in the middle of a batch, by a traceback.
"""

from __future__ import annotations

import logging
import platform
import socket
import time
from importlib import metadata
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it ships no type information

from rowkind.service.spark.errors import UnfitExecutorsError, reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LIBRARIES = ("confluent-kafka", "duckdb", "fastavro", "numpy", "pandas", "protobuf", "pyarrow")
_MISSING = "none"
_POLL_SECONDS = 0.2
_TOLD_SECONDS = 10.0

log = logging.getLogger("rowkind")

Environment = tuple[str, tuple[tuple[str, str], ...]]
"""A machine's name, and versions by what they are of."""


def check(spark: SparkSession) -> None:
    """Wait until there is an executor, and compare with the driver what runs there. Raises UnfitExecutorsError."""
    _await(spark)
    slots = 2 * spark.sparkContext.defaultParallelism
    try:
        found = set(spark.sparkContext.parallelize(range(slots), slots).map(environment).collect())
    except Py4JJavaError as error:
        raise UnfitExecutorsError(reason(error)) from None
    _, own = environment()
    for host, versions in sorted(found):
        for (name, there), (_, here) in zip(versions, own, strict=True):
            if there != here:
                raise UnfitExecutorsError(f"an executor on {host} has {name} {there}, and the driver {here}")


def environment(_: object = None) -> Environment:
    """What there is in this process."""
    versions = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = _MISSING
    try:
        from confluent_kafka import libversion  # noqa: PLC0415 - it may be missing, which is told
    except ImportError:
        versions["librdkafka"] = _MISSING
    else:
        versions["librdkafka"] = libversion()[0]
    return socket.gethostname(), tuple(versions.items())


def _await(spark: SparkSession) -> None:
    """Until an executor has registered; says that it waits."""
    context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - no other way tells of executors
    began, told = time.monotonic(), False
    # The driver is one of them.
    while context.getExecutorMemoryStatus().size() < 2:
        if not told and time.monotonic() - began > _TOLD_SECONDS:
            told = True
            log.warning(
                "no executor has registered with %s yet: has the cluster cores and memory left for this job?",
                spark.sparkContext.master,
            )
        time.sleep(_POLL_SECONDS)
