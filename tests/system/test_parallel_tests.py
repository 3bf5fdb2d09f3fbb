"""`rowkind test` with many tests: they run in several processes, with the results of one process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.testing.suites import ORDER, ran

SEVERAL = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core there is one process")

FUNCTIONS = """
import os, time

def act(what):
    if what[0].as_py() == "exit":
        os._exit(1)
    if what[0].as_py() == "sleep":
        open(f"{os.getpid()}.sleeps", "w").close()
        time.sleep(60)
    return [os.getpid()] * len(what)
"""
ACTS = """
job: acts
code: functions
functions: {act: {python: "acts:act", arguments: [STRING], returns: BIGINT, deterministic: true}}
tables: {t: {mode: append, columns: {what: STRING}}}
sinks: {acts: {mode: append, sql: "SELECT act(what) AS found FROM t"}}
"""


def _tests(*, wrong: set[int]) -> str:
    test = f"  - name: number %d\n    given: {{{ORDER}}}\n    expect: {{debts: [{{debt: %d}}]}}"
    return "\n".join(test % (number, 1 if number in wrong else 10) for number in range(16))


def _command(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rowkind", "test", str(folder / "job.yaml"), *options]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _acts(folder: Path, what: str) -> subprocess.Popen[str]:
    (folder / "functions").mkdir()
    (folder / "functions" / "acts.py").write_text(FUNCTIONS)
    (folder / "job.yaml").write_text(ACTS)
    test = "  - name: number {}\n    given: {{t: [{{what: {}}}]}}\n    expect: []\n"
    (folder / "job.tests.yaml").write_text("tests:\n" + "".join(test.format(number, what) for number in range(16)))
    return _command(folder)


@pytest.mark.parametrize("options", [("--junit", "found.xml"), ("-x",), ("--update",)])
def test_the_output_is_that_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """Failures, the XML and updated files are the same as in this process, and have the order of the tests."""
    monkeypatch.chdir(tmp_path)
    tests = _tests(wrong={2, 11, 13})
    alone = ran(tmp_path, tests, *options)
    files = {each.name: _without_times(each) for each in tmp_path.iterdir()}
    (tmp_path / "job.tests.yaml").write_text(f"tests:\n{tests}\n")
    with _command(tmp_path, *options) as together:
        output, errors = together.communicate(timeout=60)
    assert (together.returncode, output.replace(f"{tmp_path}/", ""), errors) == (alone.code, alone.output, "")
    assert {each.name: _without_times(each) for each in tmp_path.iterdir()} == files


def _without_times(file: Path) -> str:
    return re.sub(r'time="[\d.]+"', "", file.read_text())


@SEVERAL
def test_tests_run_in_several_processes(tmp_path: Path) -> None:
    """A function of the job finds itself in more than one process."""
    with _acts(tmp_path, "say") as command:
        output, errors = command.communicate(timeout=60)
    assert output.endswith("0 tests passed, 16 failed.\n"), errors
    assert len(set(re.findall(r"unexpected +(\d+)", output)) - {str(command.pid)}) > 1


@SEVERAL
def test_a_process_that_exits_is_reported(tmp_path: Path) -> None:
    """The message names the test at which the process has exited."""
    with _acts(tmp_path, "exit") as command:
        output, errors = command.communicate(timeout=60)
    assert (command.returncode, output) == (1, "")
    assert errors.startswith("rowkind: the process that ran the test 'number 0' has exited")


@SEVERAL
def test_an_interrupt_ends_all_processes(tmp_path: Path) -> None:
    """After an interrupt of the command alone, no process of it is left."""
    with _acts(tmp_path, "sleep") as command:
        while len(list(tmp_path.glob("*.sleeps"))) < 2:
            assert command.poll() is None
            time.sleep(0.05)
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=30)
    assert command.returncode != 0
    assert "Traceback" not in errors
    assert not [each for each in tmp_path.glob("*.sleeps") if Path("/proc", each.stem).exists()]
