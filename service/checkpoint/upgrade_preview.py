"""Describes what `rowkind run --upgrade` would do: which sinks continue from checkpoints, and which are rebuilt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rowkind.service.checkpoint.checkpoint import queries
from rowkind.service.checkpoint.checkpoint_metadata import Contents
from rowkind.service.checkpoint.cut_over import Amount
from rowkind.service.checkpoint.remote_folder import looking_into
from rowkind.service.checkpoint.upgrade import Upgrade, upgrade
from rowkind.service.job.model import Job
from rowkind.service.kafka.topics import with_records
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import topic_sinks
from rowkind.service.plan.fingerprint import NO_TOPIC
from rowkind.service.query.topics import Connection, connect


def diff(job: Job) -> Iterator[str]:
    """Yield the lines that describe the upgrade. Raises RowkindError."""
    connection = connect(job)
    with looking_into(job) as spark:
        recorded = queries(spark, f"{job.checkpoint}/{job.name}")
    yield from said(job, recorded, upgrade(job, recorded), connection)


def said(job: Job, recorded: Mapping[str, Contents], plan: Upgrade, connection: Connection) -> Iterator[str]:
    """Yield what would happen to every sink, and how many rows would be read for it. Raises ChangelogError."""
    before = {sink: facts for each in recorded.values() for sink, facts in each.sinks.items()}
    for name, query in plan.queries.items():
        if name in plan.stay:
            yield from (f"sink {sink.name} stays{_meanwhile(recorded[name])}" for sink in query.sinks)
            if (tasks := recorded[name].parallelism) != job.parallelism:
                yield f"  the state of query {name} moves from parallelism {tasks} to {job.parallelism}"
            continue
        held = with_records(connection.kafka, [sink.topic for sink in topic_sinks(query.sinks)])
        for sink in query.sinks:
            what = "rebuilt" if sink.name in before else "new"
            topic = f", and topic {sink.topic} updated" if sink.topic in held else ""
            printed = ", and prints its complete result" if sink.to == "print" else ""
            yield f"sink {sink.name} is {what}{topic}{printed}"
            yield from (f"  {line}" for line in plan.changes.get(sink.name, ()))
        amount = Amount.of(graph(query.sinks), connection.kafka)
        yield f"  rows to read: {amount.rows:,}"
        if amount.warning:
            yield f"  {amount.warning}"
    for gone in sorted(before.keys() - job.sinks.keys()):
        topic = "" if before[gone].get("sink.topic") == NO_TOPIC else "; its topic stays unchanged"
        yield f"sink {gone} is removed{topic}"


def _meanwhile(there: Contents) -> str:
    return ", and continues to fill its state" if there.filling else ""
