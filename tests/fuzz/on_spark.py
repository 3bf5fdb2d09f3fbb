"""The Spark engine for many cases in one session; a case takes a few seconds, so that only a sample of seeds runs.

The batch time comes from Spark's log of batches. Cases with a clock therefore cannot run on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rowkind.operators.columns.changes import Changes
from rowkind.service.job.model import Job
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.trial import TrialBatch
from rowkind.service.query.trial_on_spark import changes_of, run_query
from rowkind.service.spark.session import session
from tests.fuzz.case import Case
from tests.fuzz.running import Engine


@contextmanager
def spark_engine() -> Iterator[Engine]:
    """Yield an engine on a session with two partitions."""
    numbers = itertools.count()
    with TemporaryDirectory(prefix="rowkind-fuzz-") as folder:
        spark = session("fuzz", master="local[2]", parallelism=2, checkpoint=folder)

        def run(job: Job, sink: PhysicalSink, batches: Sequence[TrialBatch], case: Case) -> Iterator[Changes]:
            del case
            scratch = Path(folder) / str(next(numbers))
            for blocks in run_query(spark, job, [sink], batches, scratch):
                yield changes_of(sink, blocks, graph([sink]).place(sink.name))

        try:
            yield run
        finally:
            spark.stop()
