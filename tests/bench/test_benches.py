"""Every benchmark of operators runs, at a tiny size; the others load, and say what they take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TINY = {
    "operator_join": "--rows 2000 --batch 500",
    "operator_rank": "--rows 2000 --batch 500 --state 2000",
    "operator_aggregate": "--rows 2000 --batch 500",
    "operators": "--rows 500 --in memory --only join",
    "windows": "--rows 2000 --batch 1000 --only tumble",
}
COMMANDS = sorted(
    path.stem
    for path in HERE.glob("*.py")
    if path.stem not in TINY and "argparse.ArgumentParser" in path.read_text() and path != Path(__file__)
)


@pytest.mark.parametrize("bench", TINY)
def test_a_benchmark_runs(bench: str) -> None:
    """It ends well, and prints something to look at."""
    assert _run(bench, *TINY[bench].split())


@pytest.mark.parametrize("bench", COMMANDS)
def test_a_longer_benchmark_loads(bench: str) -> None:
    """What it imports is there, and its options are told."""
    assert "usage" in _run(bench, "--help")


def _run(bench: str, *arguments: str) -> str:
    command = [sys.executable, "-m", f"tests.bench.{bench}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
