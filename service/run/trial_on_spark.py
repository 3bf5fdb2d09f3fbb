"""`rowkind try --engine spark`: the same query with its state on RocksDB, fed from files instead of Kafka.

The blocks that the scans give are written as one file per batch and source before the query starts, so that every
trigger takes exactly one batch of every source.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from rowkind.operators.columns.changes import Block, Changes, RowKind
from rowkind.operators.emission import net
from rowkind.service.execute.route import Route
from rowkind.service.execute.stages import Inflow
from rowkind.service.job.model import Job
from rowkind.service.metrics import parse
from rowkind.service.physical import PhysicalScan, PhysicalSink
from rowkind.service.run.errors import QueryFailedError
from rowkind.service.run.memory import pruned
from rowkind.service.run.streaming import assemble
from rowkind.service.run.trial import Engine, TrialBatch
from rowkind.service.spark.errors import surfaced
from rowkind.service.spark.processor import EDGE_SCHEMA
from rowkind.service.spark.session import session


def on_spark(warn: Callable[[str], None]) -> Engine:
    """The Spark engine in this process; `warn` is told of retractions that found no row."""

    def run(job: Job, sink: PhysicalSink, batches: Sequence[TrialBatch]) -> Iterator[Changes]:
        with tempfile.TemporaryDirectory(prefix="rowkind-try-") as scratch:
            yield from _run(job, sink, batches, Path(scratch), warn)

    return run


def _run(
    job: Job, sink: PhysicalSink, batches: Sequence[TrialBatch], scratch: Path, warn: Callable[[str], None]
) -> Iterator[Changes]:
    """The net changes of each batch, in a session of their own. Raises QueryFailedError."""
    spark = session(job.name, master=f"local[{job.parallelism}]", parallelism=job.parallelism, checkpoint=str(scratch))
    try:
        outputs = run_query(spark, job, sink, batches, scratch)
    finally:
        spark.stop()
    for blocks in outputs:
        _report(blocks, warn)
        yield changes_of(sink, blocks)


def run_query(
    spark: SparkSession, job: Job, sink: PhysicalSink, batches: Sequence[TrialBatch], scratch: Path
) -> list[list[Block]]:
    """The blocks that come out in each batch, with `scratch` for sources and checkpoint. Raises QueryFailedError."""
    outputs: dict[int, list[Block]] = defaultdict(list)

    def collect(frame: DataFrame, batch: int) -> None:
        outputs[batch] = [Block.from_bytes(bytes(row["block"])) for row in frame.collect()]

    numbers = count()

    def source(inflows: Sequence[Inflow], labels: Sequence[int]) -> DataFrame:
        ways = [
            (each.node, Route(each.node.calc, each.member, len(labels)))
            for each in inflows
            if isinstance(each.node, PhysicalScan)
        ]
        folder = scratch / "sources" / str(next(numbers))
        folder.mkdir(parents=True)
        for number, batch in enumerate(batches):
            changes = Changes.concat([route(pruned(scan, batch)) for scan, route in ways])
            write(folder / f"{number:08}.parquet", changes, labels)
        return spark.readStream.schema(EDGE_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))

    try:
        query = (
            assemble(sink, job, source)
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    except StreamingQueryException as error:
        found = surfaced(error)
        reason = found.message if found else str(error).partition("\n")[0]
        raise QueryFailedError(sink.name, reason, found.error if found else None) from None
    return [outputs.get(number, []) for number in range(len(batches))]


def changes_of(sink: PhysicalSink, blocks: Sequence[Block]) -> Changes:
    """The net changes in the blocks of one batch."""
    changes = Changes.concat([block.changes for block in blocks])
    live = changes.filter(changes.kind != RowKind.DEAD_LETTER)
    return net(live, sink.mode, keyed=bool(sink.key), by_seq=sink.by_seq)


def write(path: Path, changes: Changes, labels: Sequence[int]) -> None:
    """Leave the blocks of one batch of one source in a file, at least one."""
    parts = zip(labels, changes.split(len(labels)), strict=True)
    # A source says that there was a batch also where it has no change.
    rows = [(label, Block(part)) for label, part in parts if len(part)] or [(labels[0], Block(changes))]
    columns = {
        "shard": pa.array([label for label, _ in rows], pa.int32()),
        "block": pa.array([block.to_bytes() for _, block in rows], pa.binary()),
    }
    # Read once and at once. Uncompressed, because snappy wants to unpack a library of its own where it may not.
    pq.write_table(pa.table(columns), path, compression="none")


def _report(blocks: Sequence[Block], warn: Callable[[str], None]) -> None:
    for block in blocks:
        for sample, value in block.counters.items():
            name, labels = parse(sample)
            if name == "rowkind_unmatched_retractions_total" and value:
                warn(f"{labels['operator']}: {value:.0f} retraction(s) found no row to take back")
