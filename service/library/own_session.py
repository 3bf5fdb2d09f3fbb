"""The Spark session that Rowkind itself starts in a program or notebook, once per process and without any output.

All jobs of the process share the session. It ends with the process. What Java and the workers print is logged by the
logger `rowkind.spark` at level INFO.
"""

from __future__ import annotations

import logging
import threading
from collections import deque

from pyspark import SparkContext
from pyspark.sql import SparkSession

from rowkind.service.job.model import Job
from rowkind.service.spark.errors import SparkStartError
from rowkind.service.spark.session import begin_without_output, local_master, session

log = logging.getLogger("rowkind.spark")

_LINES = 20

_lock = threading.Lock()
_printed: deque[str] = deque(maxlen=_LINES)
"""The last lines that Java and the workers printed."""


def begin(job: Job) -> None:
    """Start Java in the background, unless it is running. Raises MissingJavaError, SparkStartError or DownloadError."""
    with _lock:
        begin_without_output(job.checkpoint or "", job.budget, _print)


def own_session(job: Job) -> SparkSession:
    """Return the process's session. If there is none, start one with the memory and parallelism of the job.

    Raises SparkStartError with Java's last output.
    """
    with _lock:
        if SparkContext._active_spark_context is not None:  # noqa: SLF001 - pyspark has no such call for a context
            return SparkSession.builder.getOrCreate()
        try:
            return session(
                job.name,
                master=local_master(job.parallelism),
                parallelism=job.parallelism,
                checkpoint=job.checkpoint or "",
                budget=job.budget,
                code=job.python(),
            )
        except SparkStartError as error:
            raise SparkStartError("\n".join([str(error), *_printed])) from None


def _print(line: bytes) -> None:
    text = line.decode(errors="replace").rstrip()
    _printed.append(text)
    log.info("%s", text)
