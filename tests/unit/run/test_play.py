"""`rowkind play`: the result of a job and its changes, errors with their lines, limits, and the server's pages."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.job.errors import JobError
from rowkind.service.job.load import loaded
from rowkind.service.web.play import tried as module
from rowkind.service.web.play.server import Example, PlayServer, PortInUseError, examples, page, serve
from rowkind.service.web.play.tried import tried
from rowkind.service.web.play.worker import Worker

JOB = """job: counted
tables:
  orders:
    mode: retract
    primary_key: id
    columns: {id: INT NOT NULL, customer: STRING}
sinks:
  counts:
    mode: retract
    key: customer
    sql: >-
      SELECT customer, COUNT(*) AS n
      FROM orders
      GROUP BY customer
  all_orders: {mode: retract, sql: "SELECT id, customer FROM orders"}
"""


def change(op: str, number: int, customer: Any = "Ada") -> str:
    """Return a line of changes."""
    return json.dumps({"table": "orders", "op": op, "row": {"id": number, "customer": customer}})


CHANGES = "\n".join([change("+I", 1), "", change("+I", 2), change("-D", 1)])


def result(job: str = JOB, changes: str = CHANGES, sink: str | None = None) -> Mapping[str, Any]:
    """Return the result as the page gets it."""
    found: Mapping[str, Any] = json.loads(
        json.dumps(tried({"job": job, "changes": changes, "sink": sink}, Path("job.yaml")))
    )
    return found


def test_the_result_has_changes_rows_and_the_plan() -> None:
    """The result has each change with its batch, the rows at the end, and the plan with a place for each step."""
    found = result()
    assert found["error"] is None
    assert [(each["batch"], each["op"], *each["row"].values()) for each in found["changes"]] == [
        (0, "+I", "Ada", 1),
        (1, "-U", "Ada", 1),
        (1, "+U", "Ada", 2),
        (2, "-U", "Ada", 2),
        (2, "+U", "Ada", 1),
    ]
    assert found["rows"] == [{"customer": "Ada", "n": 1}]
    assert found["columns"] == ["customer", "n"]
    assert found["sinks"] == ["counts", "all_orders"]
    assert 'data-step="aggregate_1"' in found["plan"]


def test_each_batch_has_its_lines_and_the_numbers_of_each_step() -> None:
    """Each batch has the lines of its changes, and how many rows each step inserted and retracted."""
    assert result()["batches"] == [
        {"lines": [1, 1], "steps": {"scan_orders": [1, 0], "normalize_1": [1, 0], "aggregate_1": [1, 0]}},
        {"lines": [3, 3], "steps": {"scan_orders": [1, 0], "normalize_1": [1, 0], "aggregate_1": [1, 1]}},
        {"lines": [4, 4], "steps": {"scan_orders": [0, 1], "normalize_1": [0, 1], "aggregate_1": [1, 1]}},
    ]


def test_another_sink_can_be_chosen() -> None:
    """The result is that of the chosen sink, or of the first one if the job has no sink of this name."""
    assert result(sink="all_orders")["rows"] == [{"id": 2, "customer": "Ada"}]
    assert result(sink="gone")["sink"] == "counts"


@pytest.mark.parametrize(
    ("before", "after", "line", "says"),
    [
        ("GROUP BY customer", "GROUP BY customers", 14, "did you mean customer?"),
        ("FROM orders\n", "FROM order\n", 13, "there is no table order"),
        ('"SELECT id, customer FROM orders"', '"SELECT id, name FROM orders"', 15, "has no column name"),
        ("key: customer\n    sql", "keys: customer\n    sql", 10, "unknown setting"),
        ("job: counted", "job: [", 3, "not valid YAML"),
        ("id: INT NOT NULL", "id: INTT NOT NULL", 6, "INTT"),
    ],
)
def test_an_error_in_the_job_has_its_line(before: str, after: str, line: int, says: str) -> None:
    """An error of the YAML, of a setting or of the SQL has its line in the job, even if YAML folds the SQL."""
    sink = "all_orders" if "name" in after else None
    error = result(JOB.replace(before, after), sink=sink)["error"]
    assert (error["of"], error["line"]) == ("job", line), error
    assert says in error["text"]


def test_an_error_in_a_change_has_its_line_and_leaves_the_plan() -> None:
    """An invalid change is reported with its line, and the plan is still shown."""
    found = result(changes=f"{change('+I', 1)}\n{change('+I', 2, 3)}")
    assert found["error"]["of"] == "changes"
    assert found["error"]["line"] == 2
    assert found["plan"]


def test_an_error_of_the_run_has_its_line() -> None:
    """If a batch fails, its line is reported, and the result up to it is shown."""
    found = result(JOB + "unmatched: fail\n", f"{change('+I', 1)}\n{change('-D', 7)}")
    assert (found["error"]["of"], found["error"]["line"]) == ("changes", 2), found["error"]
    assert found["rows"] == [{"customer": "Ada", "n": 1}]
    noted = result(changes=f"{change('+I', 1)}\n{change('-D', 7)}")["notes"]
    assert [each.partition(":")[0] for each in noted] == ["line 2"]


def test_the_text_cannot_run_code_or_ask_a_registry() -> None:
    """Functions and tables without columns are refused, because the text may come from another person."""
    functions = "code: f\nfunctions: {f: {python: 'm:f', arguments: [INT], returns: INT, deterministic: true}}\n"
    error = result(JOB + functions)["error"]
    assert (error["of"], error["line"]) == ("job", 17)
    assert "Python functions are not supported" in error["text"]
    remote = JOB.replace("    columns: {id: INT NOT NULL, customer: STRING}\n", "")
    assert "does not ask a registry" in result(remote + "registry: {url: 'http://other.example'}\n")["error"]["text"]


def test_many_changes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """More lines than the limit are refused, and up to the limit, many lines make larger batches."""
    monkeypatch.setattr(module, "MOST_CHANGES", 3)
    monkeypatch.setattr(module, "_MOST_BATCHES", 2)
    error = result()["error"]
    assert (error["of"], error["line"]) == ("changes", 4)
    assert [each["lines"] for each in result(changes="\n".join(CHANGES.split("\n")[:3]))["batches"]] == [[1, 3]]


def test_a_slow_run_is_stopped_with_its_result_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time limit, the run stops between two batches, and the result so far is shown."""
    monkeypatch.setattr(module, "MOST_SECONDS", -1)
    found = result()
    assert "was stopped" in found["error"]["text"]
    assert found["rows"] == [{"customer": "Ada", "n": 1}]


def test_a_large_result_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the result has more changes or rows than the page shows, a note says so."""
    monkeypatch.setattr(module, "_MOST_SHOWN", 2)
    found = result()
    assert len(found["changes"]) == 2
    assert found["notes"] == ["the result has 5 changes; the first 2 are shown"]


@pytest.mark.parametrize("example", examples(), ids=lambda each: each.name.partition(":")[0])
def test_every_example_has_a_result(example: Example) -> None:
    """Every example is a valid job with changes, and each of its sinks has a result."""
    for sink in loaded(example.job, Path("job.yaml"), {}).sinks:
        found = result(example.job, example.changes, sink)
        assert found["error"] is None
        assert found["changes"]


def test_a_text_cannot_leave_the_data_of_the_page() -> None:
    """A job that contains HTML does not end the script element with the examples."""
    assert "</script><b>" not in page([Example("x", "</script><b>", "")])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PlayServer]:
    """The server; its worker starts no process before the first valid request."""
    with PlayServer(examples(), Worker(tmp_path / "job.yaml"), 0) as serving:
        yield serving


def _status(server: PlayServer, path: str, body: bytes | None = None, **headers: str) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", body)
    for name, value in headers.items():
        request.add_header(name.replace("_", "-"), value)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_server_answers_only_its_own_page(server: PlayServer) -> None:
    """Requests with another host or from another site are refused, and so are those that are too long."""
    json_ = "application/json"
    assert _status(server, "/") == 200
    assert _status(server, "/other") == 404
    assert _status(server, "/", Host="evil.example") == 403
    assert _status(server, "/result", b"{}", Content_Type="text/plain") == 403
    assert _status(server, "/result", b"{}", Content_Type=json_, Origin="http://evil.example") == 403
    assert _status(server, "/elsewhere", b"{}", Content_Type=json_) == 404
    assert _status(server, "/result", b"[", Content_Type=json_) == 400
    assert _status(server, "/result", b"", Content_Type=json_, Content_Length=str(1 << 30)) == 413


def test_a_port_in_use_is_reported(server: PlayServer, tmp_path: Path) -> None:
    """If the port is in use, the message names the option to choose another one."""
    with pytest.raises(PortInUseError, match="--port"):
        PlayServer([], Worker(tmp_path / "job.yaml"), server.port)


def test_a_missing_job_file_is_reported(tmp_path: Path) -> None:
    """If the job file cannot be read, the command says so before it serves the page."""
    with pytest.raises(JobError, match="cannot be read"):
        serve(tmp_path / "none.yaml", 0, print)
