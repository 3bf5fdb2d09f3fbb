"""A physical plan as a Spark streaming query.

    scans of one stage ─▶ one Kafka source ─┐
    stages below it ────────────────────────┴▶ shuffle by shard ─▶ operators + calcs ─▶ … ─▶ [shuffle] ─▶ Kafka sink

Every edge is the pair (shard, block). All scans that feed one stage are one source, so that a stage of their own is
all they cost; several sources agree on each batch (`service.kafka.planning`). Where a stage has one shard, whoever
feeds it knows no other label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rowkind.service.execute.members import Member
from rowkind.service.execute.operators import operator
from rowkind.service.execute.route import Route
from rowkind.service.execute.stages import (
    Inflow,
    Stage,
    always_runs,
    shard_without_key,
    stage,
    stateful,
    without_unions,
)
from rowkind.service.job.model import Job
from rowkind.service.kafka.spec import OPTION, SinkSpec, SourceSpec, to_option
from rowkind.service.kafka.topics import SchemaIds, progress_name
from rowkind.service.physical import PhysicalScan, PhysicalSink, walk
from rowkind.service.run.data_sources import SINK, SOURCE, KafkaSink, KafkaSource
from rowkind.service.run.topics import Connection
from rowkind.service.run.unmatched import UnmatchedLetters, sides
from rowkind.service.spark.placement import placement
from rowkind.service.spark.processor import OperatorProcessor, over_shards

MakeSource = Callable[[Sequence[Inflow], Sequence[int]], DataFrame]
"""Makes the one source of all scans that feed a stage: their blocks, under the labels of the stage's shards."""


@dataclass(frozen=True)
class Deployment:
    """What a query needs beside its plan.

    - `reports`: the folder on the driver in which the sink leaves a report per batch.
    - `drain`: a file on the driver; once it exists, sources offer nothing new.
    - `run`: the name of this run of the job (`service.kafka.progress`).
    """

    job: Job
    connection: Connection
    reports: Path
    drain: Path
    run: str = ""


def register(spark: SparkSession) -> None:
    """Make source and sink known to a session."""
    for source in (KafkaSource, KafkaSink):
        spark.dataSource.register(source)


def start(spark: SparkSession, sink: PhysicalSink, ids: SchemaIds, checkpoint: str, at: Deployment) -> StreamingQuery:
    """Start the query of one sink; it runs until it is stopped or fails."""
    blocks = assemble(sink, at.job, partial(_source, spark, sink, at))
    writer = blocks.writeStream.format(SINK).option(OPTION, to_option(_sink_spec(sink, ids, at)))
    return writer.queryName(sink.name).outputMode("append").option("checkpointLocation", checkpoint).start()


def assemble(sink: PhysicalSink, job: Job, source: MakeSource) -> DataFrame:
    """The blocks that reach the sink, all of one shard of its key in one partition where that matters."""
    labels = placement(job.parallelism, job.parallelism) if sink.exchange else [0]
    blocks = _united([Inflow(node, 0) for node in without_unions(sink.input)], labels, job, source)
    return blocks.repartition(job.parallelism, "shard") if sink.exchange else blocks


def _united(inflows: Sequence[Inflow], labels: Sequence[int], job: Job, source: MakeSource) -> DataFrame:
    """The blocks of all inflows of one consumer, labelled for its shards."""
    frames = [
        _blocks(stage(inflow.node), Route(inflow.node.calc, inflow.member, len(labels)), labels, job, source)
        for inflow in inflows
        if not isinstance(inflow.node, PhysicalScan)
    ]
    if scans := [inflow for inflow in inflows if isinstance(inflow.node, PhysicalScan)]:
        frames.append(source(scans, labels))
    return reduce(DataFrame.union, frames)


def _blocks(of: Stage, way_out: Route, labels: Sequence[int], job: Job, source: MakeSource) -> DataFrame:
    """The blocks that a stage emits, each labelled for one of its consumer's shards."""
    shards = placement(job.parallelism, job.parallelism)
    own = [shards[shard_without_key(job.parallelism)]] if of.has_one_shard else shards
    processor = OperatorProcessor(
        [
            Member(
                member.node.node,
                operator(member.node),
                way_out if member.feeds is None else Route(member.node.calc),
                member.feeds,
                sides(member.node),
                always_runs(member.node),
                UnmatchedLetters(member.node) if job.unmatched == "dead_letter" else None,
            )
            for member in of.members
        ],
        shards=job.parallelism,
        labels=labels,
        unmatched=job.unmatched,
    )
    return over_shards(_united(of.inflows, own, job, source), processor)


def _source(
    spark: SparkSession, sink: PhysicalSink, at: Deployment, scans: Sequence[Inflow], labels: Sequence[int]
) -> DataFrame:
    every = [node for node in walk(sink) if isinstance(node, PhysicalScan)]
    spec = SourceSpec(
        scans=tuple(each.node for each in scans if isinstance(each.node, PhysicalScan)),
        members=tuple(each.member for each in scans),
        kafka=at.connection.kafka,
        registry=at.connection.registry,
        placement=tuple(labels),
        tasks=at.job.parallelism,
        rows_per_batch=at.job.batch.max_rows,
        tolerate=at.job.dead_letters.tolerance == "all",
        opens=any(map(always_runs, stateful(sink))),
        starts={scan.source.topic: scan.source.start for scan in every},
        agreement=str(at.drain.with_name("agreements") / sink.name) if len(every) > len(scans) else None,
        drain_file=str(at.drain),
    )
    return spark.readStream.format(SOURCE).option(OPTION, to_option(spec)).load()


def _sink_spec(sink: PhysicalSink, ids: SchemaIds, at: Deployment) -> SinkSpec:
    return SinkSpec(
        job=at.job.name,
        sink=sink.name,
        topic=sink.topic,
        form=sink.mode,
        keyed=bool(sink.key),
        by_seq=sink.by_seq,
        value_schema=ids.value,
        key_schema=ids.key,
        kafka=at.connection.kafka,
        progress_topic=progress_name(at.job.name, sink.name),
        report_folder=str(at.reports),
        dead_letter_topic=at.job.dead_letters.topic,
        row_kind=None if sink.mode == "upsert" else sink.row_kind,
        transactions=sink.delivery == "exactly_once",
        run=at.run,
    )
