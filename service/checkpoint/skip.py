"""Lets a job skip a row on which it fails, so that it can continue. The skipped row becomes a dead letter."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rowkind.service.checkpoint.checkpoint import Checkpoint, queries
from rowkind.service.checkpoint.remote_folder import looking_into
from rowkind.service.execute.operators import tables
from rowkind.service.job.model import Job
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.physical.generation import is_generated
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalScan
from rowkind.service.physical.tree import walk
from rowkind.service.plan.pipeline import PlannedQuery
from rowkind.service.plan.sql.scope import near
from rowkind.service.query.errors import SkipError
from rowkind.service.query.queries import planned

_ROW = re.compile(r"([^:]+):(\d+):(\d+)")

HeldOffsets = Mapping[tuple[str, int], tuple[int, int]]
"""The first offset and the end offset of each partition, by topic and partition number."""


@dataclass(frozen=True)
class FallibleSteps:
    """The steps of a query in which rows may fail: its tables and operators, by their names in messages.

    `topics` maps each step to the topics from which its rows are derived. `aliases` maps a plan's scan names to tables.
    """

    topics: Mapping[str, Sequence[str]]
    aliases: Mapping[str, str]

    @classmethod
    def of(cls, query: PlannedQuery) -> Self:
        """Return the steps of a query."""
        scans = [node for sink in query.sinks for node in walk(sink) if isinstance(node, PhysicalScan)]
        topic = {scan.source.table: scan.source.topic for scan in scans}
        found: dict[str, Sequence[str]] = {table: (name,) for table, name in topic.items()}
        for each in graph(query.sinks).operators:
            found[f"{each.sink}.{each.node.node}"] = [topic[table] for table in tables(each.node)]
        aliases = {scan.node: scan.source.table for scan in scans if scan.node not in found}
        return cls(found, aliases)


def skip(job: Job, rows: Collection[str]) -> list[str]:
    """Record in the job's checkpoint which rows may be skipped after the next start. Return the affected queries.

    A row is written `step:partition:offset`, as in the failure's message. Raises SkipError for a row that does not
    exist, CheckpointFolderError or ChangelogError.
    """
    for row in rows:
        _parsed(row)
    if job.dead_letters.topic is None:
        raise SkipError("a skipped row becomes a dead letter: set `dead_letters: {topic: …}` in the job first")
    with looking_into(job) as spark:
        there = queries(spark, f"{job.checkpoint}/{job.name}")
        if not there:
            raise SkipError(f"there is no checkpoint of job {job.name} in {job.checkpoint}, so it has not failed yet")
        plans = planned(job, {name: each.planned_by for name, each in there.items()})
        steps = {name: FallibleSteps.of(plans[name]) for name in there if name in plans}
        topics = {topic for of in steps.values() for several in of.topics.values() for topic in several}
        check(rows, list(steps.values()), _ranges(Cluster(job.brokers), topics))
        own = {name: [found for row in rows if (found := _excuse(of, row))] for name, of in steps.items()}
        for name, excused in own.items():
            if excused:
                Checkpoint(spark, f"{job.checkpoint}/{job.name}/{name}").excuse(excused)
    return [name for name, excused in own.items() if excused]


def check(rows: Collection[str], steps: Sequence[FallibleSteps], ranges: HeldOffsets) -> None:
    """Raise SkipError for the first row whose step, partition or offset does not exist."""
    known = list(dict.fromkeys(name for of in steps for name in of.topics))
    for row in rows:
        step, partition, offset = _parsed(row)
        found = [of.topics[of.aliases.get(step, step)] for of in steps if of.aliases.get(step, step) in of.topics]
        if not found:
            raise SkipError(f"{row}: there is no step {step!r} in the job{near(step, known)}")
        topics = list(dict.fromkeys(topic for several in found for topic in several))
        held = {topic: ranges[topic, partition] for topic in topics if (topic, partition) in ranges}
        if not held:
            counts = [f"topic {topic} has {_partitions(ranges, topic)}" for topic in topics]
            raise SkipError(f"{row}: there is no partition {partition}: {', '.join(counts)}")
        # An operator's row may be derived from a record that retention has since deleted.
        by_scan = len(topics) == 1 and "." not in step
        if not any((first if by_scan else 0) <= offset < end for first, end in held.values()):
            held_text = [f"partition {partition} of topic {topic} {_offsets(*each)}" for topic, each in held.items()]
            raise SkipError(f"{row}: there is no record at offset {offset}: {', '.join(held_text)}")


def _excuse(steps: FallibleSteps, row: str) -> str | None:
    """Return the row with the query's own name for its step, or None if the query has no such step."""
    step, partition, offset = _parsed(row)
    name = steps.aliases.get(step, step)
    return f"{name}:{partition}:{offset}" if name in steps.topics else None


def _parsed(row: str) -> tuple[str, int, int]:
    found = _ROW.fullmatch(row)
    if found is None:
        raise SkipError(f"{row!r} does not identify a row: expected STEP:PARTITION:OFFSET, such as orders:3:120")
    return found[1], int(found[2]), int(found[3])


def _ranges(cluster: Cluster, topics: Collection[str]) -> HeldOffsets:
    generated = {topic for topic in topics if is_generated(topic)}
    partitions = cluster.topics(set(topics) - generated).partitions
    earliest, ends = cluster.earliest(partitions), cluster.ends(partitions)
    held = {at: (earliest[at], ends[at]) for at in partitions}
    # A generated topic has no last record.
    return held | {(topic, 0): (0, sys.maxsize) for topic in generated}


def _partitions(ranges: HeldOffsets, topic: str) -> str:
    count = sum(name == topic for name, _ in ranges)
    return "only partition 0" if count == 1 else f"partitions 0 to {count - 1}"


def _offsets(first: int, end: int) -> str:
    return f"has offsets {first} to {end - 1}" if end > first else "is empty"
