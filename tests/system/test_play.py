"""`rowkind play` and `rowkind try --watch` as processes: their output, their limits and their end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rowkind.service.web.play.worker import Worker
from tests.unit.run.test_play import CHANGES, JOB, change

ROWKIND = str(Path(sys.executable).with_name("rowkind"))
SECONDS = 60.0


@contextmanager
def _started(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Start a command in a folder with a job and its changes; yield the process and the file with its output."""
    (folder / "job.yaml").write_text(JOB)
    (folder / "changes.jsonl").write_text(CHANGES)
    with (folder / "output").open("w") as output:
        process = subprocess.Popen([ROWKIND, *options], cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield process, folder / "output"
        finally:
            process.kill()
            process.wait()


def _until(found: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not found():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_play_serves_its_page_until_ctrl_c(tmp_path: Path) -> None:
    """The command prints its address and serves the job file. Ctrl-C ends it on a new line, with exit code 0."""
    with _started(tmp_path, "play", "job.yaml", "--port", "0") as (process, output):
        _until(lambda: "until Ctrl-C" in output.read_text(), "it prints no address")
        address = output.read_text().split()[4]
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            assert "SELECT customer, COUNT(*)" in answer.read().decode()
        body = json.dumps({"job": JOB, "changes": CHANGES}).encode()
        request = urllib.request.Request(f"{address}result", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            assert json.loads(answer.read())["rows"] == [{"customer": "Ada", "n": 1}]
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
        assert output.read_text().endswith("until Ctrl-C.\n\n")


def _result(worker: Worker, job: str = JOB) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(worker.result({"job": job, "changes": CHANGES}))
    return found


def test_a_request_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """If a request takes too long, its result says so, and the next request has its result."""
    with Worker(tmp_path / "job.yaml", 0.0) as worker:
        assert "takes more than 0 s" in _result(worker)["error"]["text"]
        worker._most_seconds = SECONDS
        assert _result(worker)["error"] is None


def test_a_request_that_needs_too_much_memory_is_ended(tmp_path: Path) -> None:
    """If a query needs too much memory, its result says so, and the next request has its result."""
    huge = JOB.replace("COUNT(*) AS n", "MAX(REPEAT(customer, 2000000000)) AS n")
    with Worker(tmp_path / "job.yaml", SECONDS) as worker:
        assert _result(worker, huge)["error"] is not None
        assert _result(worker)["error"] is None


def test_try_watch_runs_again_when_a_file_is_changed(tmp_path: Path) -> None:
    """After a change of the job or of the changes, the result or the error is printed; Ctrl-C ends with exit code 0."""
    options = ("try", "job.yaml", "--changes", "changes.jsonl", "--sink", "counts", "--fold", "--watch")
    with _started(tmp_path, *options) as (process, output):
        _until(lambda: '{"row": {"customer": "Ada", "n": 1}}' in output.read_text(), "there is no first result")
        (tmp_path / "changes.jsonl").write_text(f"{CHANGES}\n{change('+I', 3, 'Eve')}")
        _until(lambda: '{"row": {"customer": "Eve", "n": 1}}' in output.read_text(), "the changes are not noticed")
        (tmp_path / "job.yaml").write_text(JOB.replace("GROUP BY customer", "GROUP BY custom"))
        _until(lambda: "did you mean customer?" in output.read_text(), "the error is not shown")
        (tmp_path / "job.yaml").write_text(JOB.replace("AS n", "AS many"))
        _until(lambda: '{"row": {"customer": "Eve", "many": 1}}' in output.read_text(), "the job is not noticed")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0


def test_try_watch_needs_a_file(tmp_path: Path) -> None:
    """Standard input cannot be watched: the command is refused."""
    (tmp_path / "job.yaml").write_text(JOB)
    command = [ROWKIND, "try", "job.yaml", "--changes", "-", "--watch"]
    done = subprocess.run(command, cwd=tmp_path, input="", capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "needs a file of changes" in done.stderr
