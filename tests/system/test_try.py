"""`rowkind try` as a separate process."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.run.test_try import CHANGES, JOB, Tried, tried

ROWKIND = str(Path(sys.executable).with_name("rowkind"))

_JOB = {
    "job": "tried",
    "tables": {"t": {"topic": "t", "mode": "append", "columns": {"x": "INT"}}},
    "sinks": {"o": {"topic": "o", "mode": "append", "sql": "SELECT fx(x) AS y FROM t"}},
    "code": "functions",
    "functions": {"fx": {"python": "fx:f", "arguments": ["INT"], "returns": "INT", "deterministic": True}},
}
_CODE = """
def f(x):
    import pandas as pd
    return pd.Series(x.to_pandas() + 1)
"""


def _as_a_process(folder: Path, *options: str) -> Tried:
    """Run `rowkind try` over the files of a folder."""
    done = subprocess.run(
        [ROWKIND, "try", "job.yaml", "--changes", "changes.jsonl", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Tried(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("job", "code"),
    [(JOB, 0), (JOB.replace("SELECT id, name FROM customers", "SELECT id, nam FROM customers"), 2)],
    ids=["fine", "refused"],
)
def test_a_process_says_what_is_said_within_this_one(tmp_path: Path, job: str, code: int) -> None:
    """The process has the same output, error output and exit code as the call within this process."""
    within = tried(tmp_path, CHANGES, "--sink", "paid" if code == 0 else "names", job=job)
    assert _as_a_process(tmp_path, "--sink", "paid" if code == 0 else "names") == within
    assert (within.code, bool(within.output), bool(within.errors)) == (code, code == 0, code != 0)


def test_functions_have_pandas(tmp_path: Path) -> None:
    """A function can import pandas, convert Arrow columns to it, and return a pandas Series."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "fx.py").write_text(_CODE)
    (tmp_path / "job.yaml").write_text(json.dumps(_JOB))
    (tmp_path / "changes.jsonl").write_text(json.dumps({"table": "t", "op": "+I", "row": {"x": 1}}))
    command = [sys.executable, "-m", "rowkind", "try", str(tmp_path / "job.yaml"), "--fold"]

    done = subprocess.run(
        [*command, "--changes", str(tmp_path / "changes.jsonl")], capture_output=True, text=True, check=False
    )

    assert done.stdout.splitlines() == ['{"row": {"y": 2}}'], done.stderr


def test_a_small_job_takes_little_more_than_to_load_the_libraries(tmp_path: Path) -> None:
    """In the best of three runs, a small job takes less than four times the processor time of importing libraries."""

    def best(run: Callable[[], int]) -> float:
        used = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert run() == 0
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(used)

    tried(tmp_path, CHANGES, "--sink", "paid")
    libraries = "import numpy, pyarrow.compute, pydantic, sqlglot"
    load = best(lambda: subprocess.run([sys.executable, "-c", libraries], check=False).returncode)
    assert best(lambda: _as_a_process(tmp_path, "--sink", "paid").code) < 4 * load
