"""Every benchmark runs at a tiny size."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import ratios

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TINY = {
    "operator_join": "--rows 2000 --batch 500",
    "operator_rank": "--rows 2000 --batch 500 --state 2000",
    "operator_aggregate": "--rows 2000 --batch 500",
    "operators": "--rows 500 --in memory --only join",
    "windows": "--rows 2000 --batch 1000 --only tumble",
    "hot_keys": "--rows 500 --batches 2 --only clicks",
    "one_key": "--keys 50",
    "client": "--records 2000",
    "intervals": "--only 250 --warm-up 1 --seconds 2",
    "folded": "--changes 2000",
    "verify": "--rows 2000 --memory 256MB",
    "why": "--rows 2000",
    "sql_tests": "--tests 2",
    "tpch": "--scale 0.001 --only q6",
    "state_store": "--changes 100 --batches 4 --only cache",
    "first_result": "--runs 1 --rest 0",
    "first_steps": "--runs 1 --only try",
    "scale": "--only tasks --most 2 --seconds 1",
    "compare": "--engines rowkind --only throughput --rows 300000 --queries aggregate",
}


@pytest.mark.parametrize("bench", TINY)
def test_a_benchmark_runs(bench: str) -> None:
    """A benchmark exits with code 0 and prints something."""
    assert _run(bench, *TINY[bench].split())


def test_no_benchmark_is_left_out() -> None:
    """Every module with its own options has a tiny size here."""
    commands = {path.stem for path in HERE.glob("*.py") if "argparse.ArgumentParser" in path.read_text()}
    commands |= {path.parent.name for path in HERE.glob("*/__main__.py")}
    assert commands - {Path(__file__).stem} == set(TINY)


def test_every_table_has_its_place() -> None:
    """A benchmark that writes its table into the page finds the section, which it would miss only after its run."""
    page = (HERE / "README.md").read_text("utf-8")
    sections = {
        name for path in HERE.glob("*.py") for name in re.findall(r'write\("([a-z ]+)", \[table\]\)', path.read_text())
    }
    assert sections
    assert {name for name in sections if f"<!-- {name} -->" not in page} == set()


def test_the_chart_shows_the_tables() -> None:
    """The chart of the ratios is drawn from the tables of the page as they are."""
    assert (ROOT / "docs/pictures/ratios.svg").read_text("utf-8") == ratios.chart(
        (HERE / "README.md").read_text("utf-8")
    )


def _run(bench: str, *arguments: str) -> str:
    command = [sys.executable, "-m", f"tests.bench.{bench}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout
