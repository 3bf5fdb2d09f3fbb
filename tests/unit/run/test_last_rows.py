"""The last changes of a sink and the last dead letters, from the write task to the status and its port."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro.codec import encode
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Changes, binary
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.kafka.written_sample import SampledRows, WrittenSample, last_rows
from rowkind.service.monitoring.last_rows import LastRows
from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.monitoring.status import JobStatus, WrittenChange
from rowkind.service.multi.pages import SeveralPages
from rowkind.service.web.http import Guard, StatusServer
from rowkind.service.web.job_pages import JobPages
from tests.page import jobs, scene
from tests.queries import BLOCKED


def written(number: int, length: int = 1) -> Changes:
    """Return inserted and deleted rows in turn."""
    columns = {
        field.name: pa.array([str(at) * length if field.type.sql.startswith("STRING") else at for at in range(number)])
        for field in BLOCKED.fields
    }
    kinds = np.where(np.arange(number) % 2, RowKind.DELETE, RowKind.INSERT).astype(np.int8)
    return replace(Changes.empty(), kind=kinds, payload=encode(BLOCKED, columns, number))


def test_a_task_reports_its_last_rows() -> None:
    """A task that has written many rows reports the last 20, and a long row without its content."""
    rows = last_rows(written(1_000))
    assert len(rows) == 20
    changes = _shown(rows)
    assert [each.kind for each in changes[:2]] == ["-D", "+I"]
    assert 999 in (changes[0].row or {}).values() or "999" in (changes[0].row or {}).values()
    long = replace(written(1), payload=binary([b"x" * 5_000]))
    assert last_rows(long) == [(0, None)]
    assert _shown(last_rows(long))[0].row is None


def _shown(rows: SampledRows) -> tuple[WrittenChange, ...]:
    last = LastRows({"s": BLOCKED})
    last.add(WrittenSample({"s": rows}), 7.0)
    return last.changes("s")


def test_the_status_has_the_last_20_of_all_tasks() -> None:
    """Rows and letters of several tasks are listed together, newest first, and at most 20 of each."""
    last = LastRows({"s": BLOCKED})
    for at in range(30):
        sample = WrittenSample({"s": last_rows(written(2))})
        sample.add_letters([DeadLetter("t", "value", "E", f"reason {at}", "topic", 0, at, value=b"secret")] * 3)
        assert all(each.value is None for each in sample.letters)
        last.add(sample, float(at))
    assert [each.at for each in last.changes("s")] == [float(at) for at in range(29, 19, -1) for _ in range(2)]
    assert [each.offset for each in last.letters()][:4] == [29, 29, 29, 28]
    assert len(last.letters()) == 20
    assert last.changes("other") == ()


@pytest.fixture(scope="module")
def monitor() -> Monitor:
    """A job that has written rows."""
    return scene.lively(scene.job())


@pytest.mark.parametrize(
    ("guard", "shown"), [(Guard(), True), (Guard(local=False), False), (Guard(login="a:b", local=False), True)]
)
def test_rows_need_a_login_or_this_machine(monitor: Monitor, guard: Guard, *, shown: bool) -> None:
    """If other machines reach the port without a login, neither the page nor the JSON has values of rows."""
    with StatusServer(JobPages(monitor, {}), "127.0.0.1", 0, guard) as server:
        page, document = (ask(server, path, guard.login) for path in ("/", "/status.json"))
        own = ask(server, "/query/main", guard.login)
    status = JobStatus.from_json(document)
    assert status.shows_rows == shown
    assert bool(status.queries[0].letters) == bool(status.queries[0].sinks[0].last) == shown
    for text in (page, own, document):
        assert ("Grace" in text) == ("twelve" in text) == shown
    assert ("Rows are hidden" in page) != shown


@pytest.mark.parametrize(
    ("host", "shown"),
    [("localhost", True), ("localhost:8080", True), ("[::1]:8080", True), ("evil.example:8080", False), ("", False)],
)
def test_a_name_that_leads_to_this_machine_shows_no_rows(monitor: Monitor, host: str, *, shown: bool) -> None:
    """A site whose name leads to 127.0.0.1 cannot make a browser read rows; with a login, any name may be used."""
    assert Guard().shows_rows(host) == shown
    assert Guard(login="a:b").shows_rows(host)
    with StatusServer(JobPages(monitor, {}), "127.0.0.1", 0, Guard()) as server:
        assert ("Grace" in ask(server, "/status.json", host=host)) == shown


@pytest.mark.parametrize("local", [True, False])
def test_a_service_that_others_reach_hides_the_rows_of_its_jobs(monitor: Monitor, *, local: bool) -> None:
    """A job's own port is local, but the service's port decides."""
    with (
        jobs.several(works=monitor) as service,
        StatusServer(SeveralPages(service), "127.0.0.1", 0, Guard(local=local)) as server,
    ):
        for path in ("/jobs/works/", "/jobs/works/status.json", "/jobs/works/query/main"):
            assert ("Grace" in ask(server, path)) == local


def test_the_history_is_a_document_of_its_own(monitor: Monitor) -> None:
    """`/history.json` has the history, and an unknown query is refused with the names of the others."""
    with StatusServer(JobPages(monitor, {}), "127.0.0.1", 0, Guard()) as server:
        said = json.loads(ask(server, "/history.json"))
        assert [len(each["series"]["read"]) for each in said["main"]] == [359, 287]
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(server, "/query/mian")
        assert b"the queries are main" in refused.value.read()


def ask(server: StatusServer, path: str, login: str | None = None, host: str | None = None) -> str:
    """Return the text of a page."""
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}")
    if login is not None:
        request.add_header("Authorization", "Basic YTpi")
    if host is not None:
        request.add_header("Host", host)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.read().decode())
