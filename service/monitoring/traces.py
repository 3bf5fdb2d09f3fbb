"""Each batch of a query as a trace of OpenTelemetry, told when it has ended.

    batch                              query, number, rows read and written
      source    latestOffset           Spark asks what there is to read
      log       walCommit              what the batch reads is written down
      planning  getBatch, queryPlanning
      tasks     addBatch               as many at a time as there are cores
        read                           of all tables
        JOIN    order_payments         an operator of a sink
        write                          to Kafka
      log       commitOffsets          the batch is done

Spark times the phases, one after the other. What is inside the tasks runs side by side, and what is known of it is how
much work it was: its span begins with the tasks and lasts as long as its work takes if all tasks share it alike.

Where traces go is said by the variables that OpenTelemetry has for that.
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
"""How long the end of a job waits for an endpoint that does not answer."""

_Place = tuple[str, str]
"""The name of an operator and of its sink; ("", "") is the batch as a whole."""

log = logging.getLogger("rowkind")


class Traces:
    """Of one job. Its methods are called by one thread."""

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
            log.warning("traces are sent as %s and not as %s: its usual port is 4318", _SPOKEN, protocol)

    def note(self, query: str, reports: Sequence[Report], progress: Sequence[Mapping[str, Any]]) -> None:
        """What tasks of a query have counted since, and Spark's progress, which may be told more than once."""
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
        """A batch did not come to its end."""
        self._reports.pop(query, None)
        now = time.time_ns()
        span = self._tracer.start_span("batch", attributes={"rowkind.query": query}, start_time=now)
        span.set_status(Status(StatusCode.ERROR, reason))
        span.end(now)

    def close(self) -> None:
        """No more comes. What the endpoint has not got yet has a moment to get there."""
        self._provider.force_flush(_CLOSE_MS)
        self._provider.shutdown()

    def _span(self, within: Span, name: str, attributes: Mapping[str, Any], begin: int) -> Span:
        return self._tracer.start_span(name, set_span_in_context(within), attributes=attributes, start_time=begin)


def _counted(reports: Sequence[Report]) -> tuple[dict[_Place, float], dict[_Place, dict[str, int]]]:
    """Seconds of work by where it was done, and rows."""
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
