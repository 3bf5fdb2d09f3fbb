"""What a plan says of the tables that it reads: how their changes come, and their watermarks."""

from __future__ import annotations

from collections.abc import Iterator

from rowkind.service.job.duration import show
from rowkind.service.plan.explain.description import Fact
from rowkind.service.source_table import SourceTable, Watermark

_FORMATS = {"avro": "", "plain_avro": "Avro without a frame", "json": "JSON"}


def table_facts(source: SourceTable) -> Iterator[Fact]:
    """What is declared of a table."""
    form = _FORMATS[source.format] + (" of Debezium" if source.debezium else "")
    values = {"values": source.format, "debezium": source.debezium} if form else {}
    if source.mode != "append":
        key = f", replaced by ({', '.join(source.primary_key)})" if source.primary_key else ", no primary key"
        exact = ", exact: every retraction takes back a row that was sent" if source.exact else ""
        yield Fact("table", f"{source.mode}{key}{exact}")
    if form:
        yield Fact("values", form.strip(), values)
    if source.watermark is not None:
        yield _watermark(source.watermark)


def _watermark(mark: Watermark) -> Fact:
    delay = f", less {show(mark.delay_us // 1000)}" if mark.delay_us else ""
    if mark.time != mark.of:
        delay = f", less a delay by row{delay.replace(', less', ' and')}"
    late = "a dead letter" if mark.late == "dead_letter" else "left out"
    longer = f" {show(mark.allowed_ms)} behind that, as long as state is kept," if mark.allowed_ms else ""
    text = (
        f"the latest of {mark.subject}{delay}, of the slowest partition but for those without rows for "
        f"{show(mark.idle_ms)}; what comes too late{longer} is {late}"
    )
    values = {
        "column": mark.subject,
        "delay_ms": mark.delay_us // 1000,
        "idle_ms": mark.idle_ms,
        "late": mark.late,
        "allowed_lateness_ms": mark.allowed_ms,
    }
    return Fact("watermark", text, {"watermark": values})
