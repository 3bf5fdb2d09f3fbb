"""Checks that a cluster's executors have the driver's interpreter and libraries.

The code of this package is shipped to executors, but its dependencies are not. A library with a different version may
misread data, and a missing library causes a traceback in the middle of a batch.
"""

from __future__ import annotations

import logging
import platform
import socket
import time
from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped] # it ships no type information

from rowkind.service.spark import kubernetes
from rowkind.service.spark.errors import CrashedExecutorsError, UnfitExecutorsError, reason
from rowkind.service.spark.jvm import ended

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LIBRARIES = ("confluent-kafka", "duckdb", "fastavro", "numpy", "pandas", "protobuf", "pyarrow")
_MISSING = "none"
_POLL_SECONDS = 0.2
_LOOK_SECONDS = 1.0
_TOLD_SECONDS = 10.0
_TOO_MANY_LOST = 11
"""The exit code of the driver's JVM after executors on Kubernetes have failed repeatedly."""

_MAYBE = "does the cluster have enough free cores and memory for this job?"
_CRASHED = (
    " Or do executors exit as soon as they start? If so, their standard error, in the workers' work folders, has the "
    "reason"
)
"""A standalone master restarts such executors indefinitely, and does not report this to the driver."""

log = logging.getLogger("rowkind")

Environment = tuple[str, tuple[tuple[str, str], ...]]
"""A machine's name, and the names and versions of its components."""


def check(spark: SparkSession, asked_to_stop: Callable[[], bool]) -> None:
    """Wait until there is an executor, and compare its environment with the driver's.

    The wait ends early if `asked_to_stop` returns true. Raises UnfitExecutorsError or CrashedExecutorsError.
    """
    _await(spark, asked_to_stop)
    if asked_to_stop():
        return
    slots = 2 * spark.sparkContext.defaultParallelism
    try:
        found = set(spark.sparkContext.parallelize(range(slots), slots).map(environment).collect())
    except Py4JJavaError as error:
        raise UnfitExecutorsError(reason(error)) from None
    _, own = environment()
    for host, versions in sorted(found):
        for (name, there), (_, here) in zip(versions, own, strict=True):
            if there != here:
                raise UnfitExecutorsError(f"an executor on {host} has {name} {there}, but the driver has {here}")


def environment(_: object = None) -> Environment:
    """Return the versions in this process."""
    versions = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = _MISSING
    try:
        from confluent_kafka import libversion  # noqa: PLC0415 - it may be missing, which is reported
    except ImportError:
        versions["librdkafka"] = _MISSING
    else:
        versions["librdkafka"] = libversion()[0]
    return socket.gethostname(), tuple(versions.items())


def _await(spark: SparkSession, asked_to_stop: Callable[[], bool]) -> None:
    """Wait for an executor to register, and log why there is none yet.

    Raises CrashedExecutorsError if all executors fail.
    """
    context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - there is no other way to ask about executors
    master = str(spark.sparkContext.master)
    pods = kubernetes.is_kubernetes(master)
    began = looked = time.monotonic()
    why = told = ""
    try:
        # The status also includes the driver.
        while context.getExecutorMemoryStatus().size() < 2 and not asked_to_stop():
            now = time.monotonic()
            # A failed pod soon disappears, together with the reason for its failure.
            if pods and now - looked > _LOOK_SECONDS:
                why, looked = kubernetes.ails(spark) or why, now
            words = why or (_MAYBE if pods else _MAYBE + _CRASHED)
            if now - began > _TOLD_SECONDS and words != told:
                log.warning("no executor has registered with %s yet: %s", master, words)
                told = words
            time.sleep(_POLL_SECONDS)
    except Py4JError:
        if ended() != _TOO_MANY_LOST:
            raise
        raise CrashedExecutorsError(why or "see the logs of their pods") from None
