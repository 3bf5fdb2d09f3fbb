"""Traces of batches, as an OpenTelemetry collector receives them."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rowkind.service.dev.broker import Broker
from rowkind.service.run import lifecycle
from tests.run.process import Rowkind, until
from tests.run.shop import Shop

COUNTED = {
    "mode": "upsert",
    "key": "stars",
    "sql": "SELECT stars, COUNT(*) AS n FROM ratings WHERE stars IS NOT NULL GROUP BY stars",
}
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Yield an endpoint for traces, and the spans received, each with the attributes of its resource."""
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                told = values(resource.resource.attributes)
                spans.extend((told, span) for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its name in the base class
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", spans
        finally:
            server.shutdown()
            thread.join()


def values(attributes: Any) -> dict[str, Any]:
    """Return attributes as a dictionary."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@pytest.mark.kafka
@pytest.mark.spark
def test_a_batch_is_a_trace_with_its_phases_and_operators(broker: Broker, tmp_path: Path) -> None:
    """A trace has the batch's phases and its operators' work, and a closed endpoint does not delay the job's end."""
    shop = Shop(broker.bootstrap_servers, tmp_path, f"traces-{os.getpid()}")
    shop.row("ratings", "+I", rating_id=1, stars=5)
    shop.flush()
    job = shop.job({"counted": COUNTED})
    with collector() as (endpoint, found):
        environment = {ENDPOINT: endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        with Rowkind(tmp_path / "output", "run", str(job), "--port", "0", **environment) as running:
            until(lambda: any(span.name == "batch" for _, span in found), "a trace", lambda: running.error)
            shop.row("ratings", "+I", rating_id=2, stars=4)
            shop.flush()
            until(lambda: sum(span.name == "batch" for _, span in found) > 1, "another", lambda: running.error)
            running.terminate()
            ended = running.ended()
    assert ended.code == 0, ended.error
    assert "Traceback" not in ended.error
    (resource, batch), *_ = [each for each in found if each[1].name == "batch"]
    assert (resource["service.name"], resource["rowkind.job"]) == ("rowkind", shop.name)
    told = values(batch.attributes)
    assert (told["rowkind.query"], told["rowkind.batch"]) == ("main", 0)
    assert (told["rowkind.rows.read"], told["rowkind.rows.written"]) == (1, 1)
    trace = [span for _, span in found if span.trace_id == batch.trace_id]
    phases = [span for span in trace if span.parent_span_id == batch.span_id]
    assert [each.name for each in phases] == ["source", "log", "planning", "planning", "tasks", "log"]
    ends = [batch.start_time_unix_nano, *(each.end_time_unix_nano for each in phases)]
    assert [each.start_time_unix_nano for each in phases] == ends[:-1]
    assert ends[-1] <= batch.end_time_unix_nano
    tasks = next(each for each in phases if each.name == "tasks")
    work = {span.name: values(span.attributes) for span in trace if span.parent_span_id == tasks.span_id}
    assert {"read", "write"} < work.keys()
    (operator,) = (each for each in work.values() if each.get("rowkind.sink") == "counted")
    assert (operator["rowkind.rows.in"], operator["rowkind.rows.out"]) == (1, 1)
    assert operator["rowkind.work_seconds"] > 0
    assert len(trace) == 1 + len(phases) + len(work)


def test_who_asks_for_traces_without_the_libraries_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The job runs without traces, and warns only if traces were asked for."""
    with lifecycle._tracing("shop") as traces:
        assert traces is None
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with lifecycle._tracing("shop") as traces:
        assert traces is None
    assert not caplog.records
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    monkeypatch.delitem(sys.modules, "rowkind.service.monitoring.traces", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with caplog.at_level(logging.WARNING), lifecycle._tracing("shop") as traces:
        assert traces is None
    assert "install rowkind[traces]" in caplog.text
