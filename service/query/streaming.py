"""Runs a query's graph as a Spark streaming query.

    one Kafka source ─▶ shuffle by shard ─▶ level 1 ─▶ shuffle by shard ─▶ level 2 ─▶ … ─▶ [shuffle ─▶] one writer

The rows of every edge have the form (shard, level, block). A level is a stateful stage that contains all operators of
the same depth. Blocks for deeper levels pass through it unchanged. A stage's fixed cost, at the start and in every
batch, is therefore paid once per level, not once per operator. All sinks of the query have the same position after
every batch. The tasks of the last level write their own output, unless the output must first move to other tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it ships no type information
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rowkind.service.execute.members import Member
from rowkind.service.execute.route import shard_without_key
from rowkind.service.execute.stage import members
from rowkind.service.job.model import Job
from rowkind.service.kafka.sink_formats import Forms
from rowkind.service.kafka.spec import OPTION, SinkSpec, SourceSpec, TopiclessSink, WriterSpec, to_option
from rowkind.service.kafka.topics import filling_name, progress_name
from rowkind.service.physical.graph import Graph, always_runs
from rowkind.service.physical.node import PhysicalSink, topic_sinks
from rowkind.service.query.operator_letters import LateLetters, LeftOutLetters, UnmatchedLetters, sides, tells_late
from rowkind.service.query.source import SOURCE, KafkaSource
from rowkind.service.query.spark_sink import Reports, TaskWriter
from rowkind.service.query.topics import Connection
from rowkind.service.spark.cache import DEFAULT_LIMITS, DISK, CacheLimits, lies_in_memory, scratch
from rowkind.service.spark.errors import SourceLostError, first_line
from rowkind.service.spark.placement import one_each, placement
from rowkind.service.spark.processor import Level, OperatorProcessor, over_shards

_MOST_ASKED = 5
"""The maximum number of attempts to load a source if its process exits each time."""


@dataclass(frozen=True)
class Deployment:
    """The parameters of a query in addition to its graph.

    - `name`: the query's name. `forms`: the formats of its sinks, by sink name.
    - `reports`: the counters of the tasks that write.
    - `drain`: a file on the driver. Once it exists, the source offers nothing new.
    - `shards`: the number of shards of the state. `tasks`: the number of each stage's tasks and state partitions.
    - `run`: the name of this run of the job (`service.kafka.progress`).
    - `filling`: if not empty, the query reads up to the topics' current ends and then stops. It writes to temporary
      topics, whose names end with this token.
    - `stops`: the query stops when there is nothing new to read.
    - `replays`: the source first offers the batches of `replay_file`. `replay_only`: it offers no other batches.
    - `written`, `printer`: see `WriterSpec`. `excused`, `begun`: see `SourceSpec`.
    """

    job: Job
    name: str
    connection: Connection
    forms: Mapping[str, Forms]
    reports: Reports
    drain: Path
    shards: int
    tasks: int
    run: str = ""
    filling: str = ""
    stops: bool = False
    replays: bool = True
    replay_only: bool = False
    written: int = 0
    excused: frozenset[str] = frozenset()
    begun: int = 0
    printer: str = ""

    @property
    def once(self) -> Self:
        """A copy of this deployment whose query stops after the current batch."""
        return replace(self, stops=True, replays=False, replay_only=True)

    @property
    def forward(self) -> Self:
        """The same deployment for a query that stops when all batches are replayed."""
        return replace(self, stops=True, replay_only=True)

    @property
    def progress_topic(self) -> str:
        """The query's progress topic."""
        return progress_name(self.job.name, self.name)

    def topic(self, sink: PhysicalSink) -> str:
        """Return the topic to which the rows of a sink with a topic are written."""
        return filling_name(self.job.name, self.name, sink.name, self.filling) if self.filling else sink.topic


def register(spark: SparkSession) -> None:
    """Register the source with a session."""
    spark.dataSource.register(KafkaSource)


def start(spark: SparkSession, graph: Graph, checkpoint: str, at: Deployment) -> StreamingQuery:
    """Start a query. It runs until it is stopped or fails. A filling query stops at the topics' current ends."""
    blocks = source_of(spark, to_option(source(graph, at)))
    write = TaskWriter(writer(graph, at), at.reports)
    result = assemble(graph, at.job, levels(graph, at.job, at.shards, at.excused), blocks, at.tasks, write)
    nothing = result.writeStream.format("noop")
    if at.filling or at.stops:
        nothing = nothing.trigger(availableNow=True)
    return nothing.queryName(at.name).outputMode("append").option("checkpointLocation", checkpoint).start()


def source_of(spark: SparkSession, option: str) -> DataFrame:
    """Return the blocks of a source. `option`: its specification, encoded by `to_option`.

    Spark loads the source in a process that it keeps for the next call. If this process has exited before the next
    call, that call fails, and the following call starts a new process. Raises SourceLostError.
    """
    reader, why = spark.readStream.format(SOURCE).option(OPTION, option), ""
    for _ in range(_MOST_ASKED):
        try:
            return reader.load()
        except Py4JJavaError as error:
            why = first_line(error)
    raise SourceLostError(why)


def assemble(
    graph: Graph, job: Job, levels: Sequence[Level], read: DataFrame, tasks: int, write: TaskWriter | None = None
) -> DataFrame:
    """Return the blocks for the writer, computed from the blocks `read`.

    They are computed by `tasks` tasks, and all blocks of a shard are in the same task. If the blocks have been passed
    to `write`, the result is empty.
    """
    moves = graph.exchange or job.atomic
    cache, limits = job.budget.cache, DEFAULT_LIMITS
    if lies_in_memory(scratch()):
        limits = CacheLimits(disk=DISK) if cache is None else CacheLimits(worker=cache // tasks, disk=cache)
    blocks = read
    for level in levels:
        processor = OperatorProcessor(
            level,
            unmatched=job.unmatched,
            promises=job.promises,
            limits=limits,
            write=write if level.number == graph.levels and not moves else None,
        )
        blocks = over_shards(blocks, processor)
    if moves:
        blocks = blocks.repartition(1) if job.atomic else blocks.repartition(tasks, "shard")
    return write.after(blocks) if write is not None and (moves or not graph.levels) else blocks


def opens(graph: Graph, shards: int) -> tuple[tuple[int, int], ...]:
    """Return the shards and levels at which operators emit rows without any input."""
    levels = {each.level for each in graph.operators if always_runs(each.node)}
    return tuple((shard_without_key(shards), level) for level in sorted(levels))


def due_file(at: Deployment) -> Path:
    """Return the driver's file with the time at which a batch without rows is due.

    The file is next to the drain file.
    """
    return at.drain.with_name(f"{at.name}.due")


def replay_file(at: Deployment) -> Path:
    """Return the driver's file with the batches that the query replays."""
    return at.drain.with_name(f"{at.name}.replay")


def registry_file(at: Deployment) -> Path:
    """Return the driver's file in which the query's tasks report for how long the registry has not answered."""
    return at.drain.with_name(f"{at.name}.registry")


def levels(graph: Graph, job: Job, shards: int, excused: frozenset[str] = frozenset()) -> list[Level]:
    """Return a graph's levels. Their members create the dead letters that the job requests."""
    found: list[list[Member]] = [[] for _ in range(graph.levels)]
    for each, of in zip(members(graph, shards), graph.operators, strict=True):
        node = of.node
        found[of.level - 1].append(
            replace(
                each,
                sides=sides(node),
                failure=replace(each.failure, excused=excused),
                tell=LateLetters(node) if tells_late(node) else None,
                wrap=UnmatchedLetters(node) if job.unmatched == "dead_letter" else None,
                explain=LeftOutLetters(node),
            )
        )
    return [Level(tuple(own), number, graph.writer, placement(shards)) for number, own in enumerate(found, 1)]


def source(graph: Graph, at: Deployment) -> SourceSpec:
    """Return the specification of a query's source."""
    labels = placement(at.shards)
    return SourceSpec(
        scans=graph.scans,
        kafka=at.connection.kafka,
        registry=at.connection.registry,
        labels=labels,
        writer=graph.writer,
        writers=one_each(labels, at.tasks),
        opens=opens(graph, at.shards),
        # If a query's deepest operators were removed, their levels remain, and only pass blocks on to the writer.
        levels=tuple(sorted({each.level for each in graph.operators})),
        timed_tables=graph.timed_tables,
        timed_levels=graph.timed_levels,
        due_file=str(due_file(at)) if graph.clocks else None,
        tasks=at.tasks,
        whole_partitions=graph.whole_partitions,
        rows_per_batch=at.job.batch.max_rows,
        bytes_per_batch=at.job.budget.batch,
        min_interval_ms=at.job.batch.min_interval or 0,
        tolerate=at.job.dead_letters.tolerance == "all",
        promises=at.job.promises,
        excused=at.excused,
        drain_file=str(at.drain),
        replay_file=str(replay_file(at)) if at.replays else None,
        replay_only=at.replay_only,
        registry_file=str(registry_file(at)),
        begun=at.begun,
    )


def writer(graph: Graph, at: Deployment) -> WriterSpec:
    """Return the specification of a query's writer."""
    return WriterSpec(
        job=at.job.name,
        query=at.name,
        sinks={graph.place(sink.name): _sink(sink, at) for sink in topic_sinks(graph.sinks)},
        topicless={graph.place(sink.name): _topicless(sink) for sink in graph.sinks if sink.to != "topic"},
        kafka=at.connection.kafka,
        progress_topic=at.progress_topic,
        dead_letter_topic=at.job.dead_letters.topic,
        run=at.run,
        written=at.written,
        tasks=at.tasks,
        claims=tuple(sink.topic for sink in topic_sinks(graph.sinks)),
        printer=at.printer,
    )


def _topicless(sink: PhysicalSink) -> TopiclessSink:
    return TopiclessSink(
        sink=sink.name,
        prefix=sink.prefix or sink.name,
        prints=sink.to == "print",
        keyed=sink.keyed,
        ordered=sink.ordered,
        record=sink.value,
    )


def _sink(sink: PhysicalSink, at: Deployment) -> SinkSpec:
    forms = at.forms[sink.name]
    return SinkSpec(
        sink=sink.name,
        topic=at.topic(sink),
        form=sink.mode,
        keyed=bool(sink.key),
        by_seq=sink.by_seq,
        value=forms.value,
        key=forms.key,
        row_kind=None if sink.mode == "upsert" else sink.row_kind,
        transactions=sink.delivery == "exactly_once",
        ordered=sink.ordered,
    )
