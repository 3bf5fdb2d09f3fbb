"""Export each batch of a query as an OpenTelemetry trace when it has ended.

    batch                              query, number, rows read and written
      source    latestOffset           Spark asks for the available offsets
      log       walCommit              the batch's offsets are logged
      planning  getBatch, queryPlanning
      tasks     addBatch               tasks run in parallel, one per core
        read                           all tables
        JOIN    order_payments         an operator of a sink
        write                          to Kafka
      log       commitOffsets          the batch is complete

Spark measures the phases, which follow each other. Work inside the tasks runs in parallel, and only its total duration
is known. So the work's span begins with the tasks, and its length is the total duration divided by the number of tasks.

OpenTelemetry's standard environment variables configure the export.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

from rowkind.service.execute.metrics import parse
from rowkind.service.monitoring.monitor import STAGES
from rowkind.service.query.spark_sink import Report
from rowkind.version import version

_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN = "http/protobuf"

_WORK = {
    "rowkind_read_seconds_total": "read",
    "rowkind_operator_seconds_total": "",
    "rowkind_write_seconds_total": "write",
}
_ROWS = {
    "rowkind_rows_in_total": "rowkind.rows.read",
    "rowkind_rows_out_total": "rowkind.rows.written",
    "rowkind_operator_rows_in_total": "rowkind.rows.in",
    "rowkind_operator_rows_out_total": "rowkind.rows.out",
}
_CLOSE_MS = 2_000
"""How long a job waits at its end for an endpoint that does not answer."""

_Place = tuple[str, str]
"""The name of an operator and its sink; ("", "") represents the whole batch."""

log = logging.getLogger("rowkind")


class Traces:
    """The traces of one job. All methods must be called from the same thread."""

    def __init__(self, job: str) -> None:
        said = os.environ.get("OTEL_SERVICE_NAME") or SERVICE_NAME in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        named = {} if said else {SERVICE_NAME: "rowkind"}
        resource = Resource.create({**named, SERVICE_VERSION: version(), "rowkind.job": job})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("rowkind", version())
        self._reports: defaultdict[str, list[Report]] = defaultdict(list)
        self._told: dict[str, int] = {}
        if (protocol := next(filter(None, map(os.environ.get, _PROTOCOLS)), _SPOKEN)) != _SPOKEN:
            log.warning("traces are sent as %s; %s is not supported. The usual port is 4318", _SPOKEN, protocol)

    def note(self, query: str, reports: Sequence[Report], progress: Sequence[Mapping[str, Any]]) -> None:
        """Record new task reports of a query, and Spark's progress, which may repeat earlier batches."""
        self._reports[query] += reports
        for each in progress:
            number, milliseconds = each["batchId"], each["durationMs"]
            if "addBatch" in milliseconds and number != self._told.get(query):
                self._told[query] = number
                self._batch(query, number, each["timestamp"], milliseconds)

    def _batch(self, query: str, number: int, timestamp: str, milliseconds: Mapping[str, int]) -> None:
        reports = [each for each in self._reports[query] if each.of.batch == number]
        self._reports[query] = [each for each in self._reports[query] if each.of.batch > number]
        work, rows = _counted(reports)
        begin = int(datetime.fromisoformat(timestamp).timestamp() * 1e9)
        attributes: dict[str, Any] = {"rowkind.query": query, "rowkind.batch": number, **rows.pop(("", ""), {})}
        whole = self._tracer.start_span("batch", attributes=attributes, start_time=begin)
        at = begin
        for phase, name in STAGES.items():
            end = at + milliseconds.get(phase, 0) * 1_000_000
            span = self._span(whole, name, {"spark.phase": phase}, at)
            if phase == "addBatch":
                for (step, sink), seconds in work.items():
                    told: dict[str, Any] = {"rowkind.work_seconds": seconds, **rows.get((step, sink), {})}
                    if sink:
                        told["rowkind.sink"] = sink
                    part = self._span(span, step, told, at)
                    part.end(at + int(seconds / len(reports) * 1e9))
            span.end(end)
            at = end
        whole.end(begin + milliseconds["triggerExecution"] * 1_000_000)

    def failed(self, query: str, reason: str) -> None:
        """Record that a batch failed."""
        self._reports.pop(query, None)
        now = time.time_ns()
        span = self._tracer.start_span("batch", attributes={"rowkind.query": query}, start_time=now)
        span.set_status(Status(StatusCode.ERROR, reason))
        span.end(now)

    def close(self) -> None:
        """Send the remaining traces, for at most `_CLOSE_MS`, and shut down."""
        self._provider.force_flush(_CLOSE_MS)
        self._provider.shutdown()

    def _span(self, within: Span, name: str, attributes: Mapping[str, Any], begin: int) -> Span:
        return self._tracer.start_span(name, set_span_in_context(within), attributes=attributes, start_time=begin)


def _counted(reports: Sequence[Report]) -> tuple[dict[_Place, float], dict[_Place, dict[str, int]]]:
    """Return the seconds of work by operator or stage, and the rows by operator."""
    work: defaultdict[_Place, float] = defaultdict(float)
    rows: defaultdict[_Place, Counter[str]] = defaultdict(Counter)
    for report in reports:
        for counters in (report.counted.carried, report.counted.written):
            for sample, value in counters.items():
                name, labels = parse(sample)
                place = (labels.get("operator", ""), labels.get("sink", "")) if "operator" in labels else ("", "")
                if name in _WORK:
                    work[(_WORK[name], "") if _WORK[name] else place] += value
                elif name in _ROWS:
                    rows[place][_ROWS[name]] += int(value)
    return work, {place: dict(each) for place, each in rows.items()}
