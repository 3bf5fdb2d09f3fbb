"""`make setup` where it fails: it says why at once, and the next attempt starts from scratch."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OLD = """#!/bin/sh
exit 1
"""
BREAKS = """#!/bin/sh
case "$*" in
    -c*) ;;
    "-m venv .venv") ls -A .venv >> seen; mkdir -p .venv/half; exit 1 ;;
esac
"""
"""A Python that is new enough, and leaves half of an environment."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with what `make setup` looks at."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    for library in ("operators/arrangement/runs.c", "operators/columns/codes.c", "service/kafka/columns.c"):
        (tmp_path / library).parent.mkdir(parents=True)
        shutil.copy(ROOT / library, tmp_path / library)
    return tmp_path


def test_a_python_that_is_too_old_is_named_in_one_line(tree: Path) -> None:
    """With what to do; and no environment is left."""
    done = setup(tree, OLD)
    assert done.returncode != 0
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "/python is not Python 3.11 or newer: install one, and name it, as in PYTHON=python3.12 make setup" in line
    assert not (tree / ".venv").exists()


def test_what_a_failed_attempt_has_left_is_removed(tree: Path) -> None:
    """So that the next attempt cannot keep half of an environment."""
    for _ in range(2):
        assert setup(tree, BREAKS).returncode != 0
    assert (tree / "seen").read_text() == ""


def setup(tree: Path, python: str) -> subprocess.CompletedProcess[str]:
    """`make setup` with this program as Python."""
    (tree / "python").write_text(python)
    (tree / "python").chmod(0o755)
    command = ["make", "setup", f"PYTHON={tree / 'python'}"]
    # `make` that is called by `make test` would print its folder, and take over the options.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
