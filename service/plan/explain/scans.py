"""Descriptions of table scans and unions for `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from rowkind.quantities import amount, counted
from rowkind.service.job.duration import show
from rowkind.service.physical.generation import Generation
from rowkind.service.physical.node import PhysicalScan, PhysicalUnion
from rowkind.service.physical.source_table import SourceTable, Watermark
from rowkind.service.plan.explain.description import Fact, NodeDescription
from rowkind.service.plan.explain.records import column_values, columns
from rowkind.service.plan.explain.values import ABSENT, ScanDetails, ScanValues, WatermarkValues

_FORMATS = {"avro": "", "plain_avro": "Avro without a frame", "json": "JSON"}


def scan(node: PhysicalScan) -> NodeDescription:
    """Describe a scan: the table's mode, format and watermark."""
    source, read = node.source, node.calc.input
    alias = "" if node.alias == source.table else f" AS {node.alias}"
    form = _format(source)
    return NodeDescription(
        "scan",
        f"table {source.table}{alias} {'generated' if source.generation else f'from topic {source.topic}'}",
        ScanValues(source.table, source.topic, node.alias, source.mode, source.primary_key, source.exact),
        ScanDetails(
            column_values(read),
            source.format if form else ABSENT,
            source.debezium if form else ABSENT,
            ABSENT if source.watermark is None else _watermark_values(source.watermark),
        ),
        (Fact("reads", columns(read) or "no columns, only the number of rows"), *_facts(source, form)),
    )


def union(node: PhysicalUnion) -> NodeDescription:
    """Describe a union: the number of its inputs."""
    return NodeDescription("union", f"UNION ALL of {len(node.inputs)} inputs")


def _facts(source: SourceTable, form: str) -> Iterator[Fact]:
    """Yield the declared properties of a table."""
    if source.mode != "append":
        key = f", replaced by ({', '.join(source.primary_key)})" if source.primary_key else ", no primary key"
        exact = ", exact: every retraction matches a row that was sent" if source.exact else ""
        yield Fact("table", f"{source.mode}{key}{exact}")
    if source.generation is not None:
        yield Fact("generates", _generates(source.generation))
    elif form:
        yield Fact("values", form.strip())
    if source.watermark is not None:
        yield Fact("watermark", _watermark(source.watermark))


def _generates(of: Generation) -> str:
    end = "" if of.most is None else f", {counted(of.most, 'change')} in all"
    return f"{amount(of.rows_per_second)} changes per second{end}"


def _format(source: SourceTable) -> str:
    return _FORMATS[source.format] + (" in Debezium envelopes" if source.debezium else "")


def _watermark(mark: Watermark) -> str:
    delay = f", minus {show(mark.delay_us // 1000)}" if mark.delay_us else ""
    if mark.time != mark.of:
        delay = f", minus a delay per row{delay.replace(', minus', ' and')}"
    late = "sent to the dead letter topic" if mark.late == "dead_letter" else "dropped"
    longer = f" by more than the allowed lateness of {show(mark.allowed_ms)}" if mark.allowed_ms else ""
    return (
        f"the latest {mark.subject}{delay}, of the slowest partition, ignoring partitions without rows for "
        f"{show(mark.idle_ms)}; rows that are late{longer} are {late}"
    )


def _watermark_values(mark: Watermark) -> WatermarkValues:
    return WatermarkValues(mark.subject, mark.delay_us // 1000, mark.idle_ms, mark.late, mark.allowed_ms)
