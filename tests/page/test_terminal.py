"""A running job on a terminal: as a view, as log lines, and with `rowkind top`."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner
from rich.console import Console

from rowkind.service.cli import main
from rowkind.service.cli.progress_output import LogForm, showing_progress, usual
from rowkind.service.cli.screen import screen
from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.multi.pages import SeveralPages
from rowkind.service.web.http import Guard, StatusServer
from rowkind.service.web.job_pages import JobPages
from tests.page import jobs, scene


@pytest.fixture
def monitor() -> Monitor:
    """A job that is running."""
    return scene.lively(scene.job())


@pytest.mark.parametrize("width", [60, 110])
def test_the_view_has_every_step_and_is_no_wider_than_the_terminal(monitor: Monitor, width: int) -> None:
    """The view shows tables, operators and sinks with rates, and the time to catch up, within the width."""
    text = drawn(monitor, width)
    for said in ("orders-payments", "query main running", "orders", "payments", "order_payments.join", "paid_orders"):
        assert said in text
    if width > 100:
        assert "shard 3 is 3.3 times the mean" in text
        assert "17 dead letters" in text
    assert "main: catching up" in text
    assert " left" in text
    assert max(map(len, text.splitlines())) <= width


def test_the_view_shows_long_work_and_why_a_query_failed(monitor: Monitor) -> None:
    """The view shows the remaining time of long work, and the reason and remedy of a failure."""
    with monitor.works.work("query main copies its savepoint", "files") as told:
        told(30, 40)
        assert "30 of 40 files" in drawn(monitor, 110)
    text = drawn(scene.troubled(scene.job()), 110)
    assert "the query retracts a row, but topic order-payments" in text
    assert "→ Set the sink's mode to retract or upsert" in text


def test_the_view_lists_what_feeds_an_operator_above_it() -> None:
    """Steps are listed in the order in which rows flow, from tables to sinks."""
    text = drawn(scene.lively(scene.job("reviews")), 110)
    steps = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert steps.index("moods.normalize_1") < steps.index("moods.aggregate_1")


@pytest.mark.parametrize("form", ["lines", "json"])
def test_every_batch_is_a_line(monitor: Monitor, form: LogForm, capfd: pytest.CaptureFixture[str]) -> None:
    """Each batch is logged once, with its rows in and out, between the other log lines."""
    with showing_progress(form) as watch, watch(monitor.status):
        logging.getLogger("rowkind").info("finishing the batch")
    with showing_progress(form) as watch, watch(scene.lively(scene.job(), batches=2).status):
        pass
    lines = capfd.readouterr().err.splitlines()
    if form == "json":
        said = [json.loads(line) for line in lines]
        assert said[0]["message"] == "finishing the batch"
        batches = [each for each in said if each["message"] == "batch"]
        assert [each["number"] for each in batches] == [*range(40), 0, 1]
        assert batches[0].keys() >= {"time", "level", "query", "seconds", "rows_in", "rows_out", "lag_rows"}
        assert all(each["rows_in"] > 0 for each in batches)
    else:
        assert lines[0].endswith(" INFO finishing the batch")
        assert len([line for line in lines if " INFO batch query=main number=" in line]) == 42
        assert all(f"number={number} seconds=0." in lines[number + 1] for number in range(40))


def test_on_a_terminal_the_view_stays_below_what_is_logged(monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log lines are printed completely, and the view is drawn again below them."""
    reader, terminal = pty.openpty()
    own = os.dup(2)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "40")
    os.dup2(terminal, 2)
    try:
        with showing_progress("view") as watch, watch(monitor.status):
            logging.getLogger("rowkind").info("topic [orders] made")
    finally:
        os.dup2(own, 2)
        os.close(own)
    said = os.read(reader, 1 << 16).decode()
    os.close(reader)
    os.close(terminal)
    assert said.index("INFO topic [orders] made") < said.rindex("query main ")


def test_lines_are_told_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """If standard error is not a terminal, progress is logged as lines."""
    monkeypatch.setenv("TERM", "xterm")
    assert usual() == "lines"


def test_top_shows_a_job_from_afar(monitor: Monitor) -> None:
    """`rowkind top` prints the status once into a pipe, uses the login of the URL, and repeats it in no message."""
    with StatusServer(JobPages(monitor, {}), "127.0.0.1", 0, Guard(login="ops:geheim")) as server:
        done = CliRunner().invoke(main, ["top", f"http://ops:geheim@127.0.0.1:{server.port}"])
        assert done.exit_code == 0, done.output
        assert "query main running" in done.output
        refused = CliRunner().invoke(main, ["top", f"http://ops:falsch@127.0.0.1:{server.port}/"])
    assert refused.exit_code == 3
    assert "requires a login" in refused.output
    assert "falsch" not in refused.output


def test_top_shows_all_jobs_of_a_service(monitor: Monitor) -> None:
    """`rowkind top` shows each job of a service in a line, with errors and the command for one job, but no login."""
    with jobs.several(works=monitor, first=jobs.new()) as made:
        jobs.failing(made.members[Path("jobs/first.yaml")], 3)
        with StatusServer(SeveralPages(made), "127.0.0.1", 0, Guard(login="ops:geheim")) as server:
            url = f"http://ops:geheim@127.0.0.1:{server.port}"
            everything = CliRunner(env={"COLUMNS": "110"}).invoke(main, ["top", f"{url}/"])
            one = CliRunner().invoke(main, ["top", f"{url}/jobs/works"])
            ended = CliRunner().invoke(main, ["top", f"{url}/jobs/first"])
            mistyped = CliRunner().invoke(main, ["top", f"{url}/jobs/wroks"])
    assert everything.exit_code == 0, everything.output
    lines = everything.output.splitlines()
    assert lines[1].split()[:2] == ["works", "running"]
    assert "960,000, 1 min 35 s old" in lines[1].replace("\N{NO-BREAK SPACE}", " ")
    assert lines[2].split() == ["first", "failed", "2"]
    assert "! first: While connecting: no answer from Kafka" in everything.output
    assert "! broken: " in everything.output
    assert f"rowkind top http://127.0.0.1:{server.port}/jobs/NAME" in everything.output
    assert "query main running" in one.output
    assert (ended.exit_code, mistyped.exit_code) == (3, 2)
    assert "job first is not running: While connecting" in ended.output
    assert "there is no job wroks" in mistyped.output
    assert "works, first, broken" in mistyped.output
    assert "geheim" not in everything.output + ended.output + mistyped.output


def test_top_says_that_there_is_one_job_alone(monitor: Monitor) -> None:
    """For a path of a multi-job service, `rowkind top` says that there is only one job."""
    with StatusServer(JobPages(monitor, {}), "127.0.0.1", 0, Guard()) as server:
        done = CliRunner().invoke(main, ["top", f"http://127.0.0.1:{server.port}/jobs/shop"])
    assert done.exit_code == 2
    assert "only one job, orders-payments" in done.output


@pytest.mark.parametrize("path", ["/jobs/shop", "", "/file"])
def test_top_says_what_is_no_rowkind(path: str, tmp_path: Path) -> None:
    """`rowkind top` refuses an address at which something other than a status page answers."""
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "status.json").write_text('["no status"]')
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        done = CliRunner().invoke(main, ["top", f"http://127.0.0.1:{server.server_port}{path}"])
        server.shutdown()
    assert done.exit_code == 3
    assert re.search(
        "is not a (Rowkind status page|status page of this version of Rowkind): check the address", done.output
    )


@pytest.mark.parametrize(
    ("url", "code", "says"), [("ftp://a", 2, "not the address"), ("http://127.0.0.1:1", 3, "no response from")]
)
def test_top_says_why_it_has_nothing_to_show(url: str, code: int, says: str) -> None:
    """`rowkind top` reports an invalid or unreachable address in one line."""
    done = CliRunner().invoke(main, ["top", url])
    assert done.exit_code == code
    assert says in done.output


def test_top_follows_the_job_on_a_terminal(monitor: Monitor) -> None:
    """`rowkind top` keeps the last status if the job no longer answers, and ends with exit code 0 on Ctrl-C."""
    reader, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    said = ""

    def until(words: str) -> None:
        nonlocal said
        deadline = time.monotonic() + 240
        while words not in said:
            assert time.monotonic() < deadline, said
            if select.select([reader], [], [], 1)[0]:
                said += os.read(reader, 1 << 16).decode(errors="replace")

    with StatusServer(JobPages(monitor, {}), "127.0.0.1", 0, Guard()) as server:
        command = [sys.executable, "-m", "rowkind", "top", f"http://127.0.0.1:{server.port}", "--every", "0.2"]
        top = subprocess.Popen(command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal)
        until("batch 39")
        monitor.progress("main", scene.progress(77, 300))
        until("batch 77")
    until("the last known status is shown above")
    top.send_signal(signal.SIGINT)
    assert top.wait(30) == 0
    os.close(reader)
    os.close(terminal)


def drawn(monitor: Monitor, width: int) -> str:
    """Return the view as text."""
    console = Console(file=StringIO(), width=width, height=50)
    with console.capture() as captured:
        console.print(screen(monitor.status()))
    return captured.get()
