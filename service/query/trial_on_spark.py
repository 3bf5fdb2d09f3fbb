"""`rowkind try --engine spark`: runs the query on Spark, with state in RocksDB, and input from files instead of Kafka.

The scans' blocks are written to one file per batch before the query starts, so that each trigger processes exactly one
batch.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.block import Block, TimeMarks
from rowkind.operators.columns.changes import Changes
from rowkind.operators.columns.emission import net
from rowkind.quantities import counted
from rowkind.service.execute.delete_times import with_delete_times
from rowkind.service.execute.members import addressed
from rowkind.service.execute.metrics import parse
from rowkind.service.execute.promises import told
from rowkind.service.execute.route import Part, pieces, scanned
from rowkind.service.job.model import Job
from rowkind.service.physical.graph import Graph, graph
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.errors import QueryFailedError
from rowkind.service.query.memory import marks_of_tables, pruned
from rowkind.service.query.streaming import assemble, levels, opens
from rowkind.service.query.trial import Engine, TrialBatch
from rowkind.service.spark.edge import EDGE_SCHEMA, edge_rows
from rowkind.service.spark.errors import surfaced
from rowkind.service.spark.placement import placement
from rowkind.service.spark.session import session


def on_spark(warn: Callable[[str], None]) -> Engine:
    """Return an engine that runs Spark in this process, with warnings about unmatched retractions and late rows."""

    def run(job: Job, sink: PhysicalSink, batches: Sequence[TrialBatch]) -> Iterator[Changes]:
        with tempfile.TemporaryDirectory(prefix="rowkind-try-") as scratch:
            yield from _run(job, sink, batches, Path(scratch), warn)

    return run


def _run(
    job: Job, sink: PhysicalSink, batches: Sequence[TrialBatch], scratch: Path, warn: Callable[[str], None]
) -> Iterator[Changes]:
    """Yield the net changes of each batch, computed in a separate Spark session. Raises QueryFailedError."""
    spark = session(job.name, master=f"local[{job.parallelism}]", parallelism=job.parallelism, checkpoint=str(scratch))
    try:
        outputs = run_query(spark, job, [sink], batches, scratch)
    finally:
        spark.stop()
    place = graph([sink]).place(sink.name)
    for blocks in outputs:
        _report(blocks, warn)
        yield changes_of(sink, blocks, place)


def run_query(
    spark: SparkSession, job: Job, sinks: Sequence[PhysicalSink], batches: Sequence[TrialBatch], scratch: Path
) -> list[list[Block]]:
    """Return the blocks that reach the writer in each batch. Raises QueryFailedError.

    `scratch`: a folder for the source files and the checkpoint.
    """
    outputs: dict[int, list[Block]] = defaultdict(list)

    def collect(frame: DataFrame, batch: int) -> None:
        outputs[batch] = [Block.from_bytes(bytes(row["block"])) for row in frame.collect()]

    whole = graph(sinks)
    folder = scratch / "source"
    folder.mkdir(parents=True)
    begins = time.time() - len(batches)
    for number, batch in enumerate(batches):
        own = ((each, with_delete_times(each, pruned(each.scan, batch), {})) for each in whole.scans)
        parts = [part for each, rows in own for part in scanned(each, Emitted(rows), job.parallelism)]
        marks = marks_of_tables(whole, batch, ended=batch.ended)
        file = folder / f"{number:08}.parquet"
        write(file, parts, whole, job.parallelism, marks, batch.clock)
        # Spark reads the files in the order of these times, and no two times may be equal.
        os.utime(file, (begins + number, begins + number))
    source = spark.readStream.schema(EDGE_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    try:
        query = (
            assemble(whole, job, levels(whole, job, job.parallelism), source, job.parallelism)
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    except StreamingQueryException as error:
        found = surfaced(error)
        reason = found.message if found else str(error).partition("\n")[0]
        names = ", ".join(sink.name for sink in sinks)
        raise QueryFailedError(names, reason, found.error if found else None) from None
    return [outputs.get(number, []) for number in range(len(batches))]


def changes_of(sink: PhysicalSink, blocks: Sequence[Block], place: int) -> Changes:
    """Return the net changes of the sink at this position, from the blocks of one batch."""
    own = addressed(Batch.concat([block.batch for block in blocks]), place)
    return net(own.changes, sink.mode, keyed=sink.keyed, by_seq=sink.by_seq, ordered=sink.ordered)


def write(
    path: Path, parts: Iterable[Part], of: Graph, shards: int, marks: TimeMarks, clock: int | None = None
) -> None:
    """Write the blocks of one batch to a file.

    The file also contains a block for each level that runs without rows, and for each shard whose operators depend on
    time. `clock`: the time of the batch in ms, by default the current time.
    """
    labels = placement(shards)
    opening = ((shard, level, Batch.empty()) for shard, level in opens(of, shards))
    blocks = ((shard, level, Block(batch)) for shard, level, batch in itertools.chain(opening, pieces(parts)))
    passing = ((shard, level, Block(marks=marks)) for level in of.timed_levels for shard in range(shards))
    rows = ((labels[shard], level, block.to_bytes()) for shard, level, block in itertools.chain(blocks, passing))
    # The file is read once, soon after it is written. It is uncompressed, because snappy would unpack a native library,
    # possibly to a folder from which libraries cannot be loaded.
    now = round(time.time() * 1000) if clock is None else clock
    pq.write_table(pa.Table.from_batches([edge_rows(rows, now)]), path, compression="none")


def _report(blocks: Sequence[Block], warn: Callable[[str], None]) -> None:
    for block in blocks:
        for broken in told(block.counters):
            warn(str(broken))
        for sample, value in block.counters.items():
            name, labels = parse(sample)
            if name == "rowkind_unmatched_retractions_total" and value:
                warn(f"{labels['operator']}: {counted(value, 'retraction')} found no row to retract")
            if name == "rowkind_late_rows_total" and value:
                warn(f"{labels['operator']}: {counted(value, 'late change')} dropped")
