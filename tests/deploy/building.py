"""Builds the wheel and the source archive, as `make wheel` does, but from a copy of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "rowkind", "operators", "avro", "service", "examples")


def build_from_copy(source: Path, folder: Path) -> None:
    """Copy the tree to `source`, so that nothing is left in the tree or taken from it by mistake, and build there."""
    source.mkdir(exist_ok=True)
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, source / part)
    build(source, folder)


def build(source: Path, folder: Path, *kinds: str) -> None:
    """Build both, or one of them, as `make wheel` does."""
    uv = [sys.executable, "-m", "uv", "build", "--quiet", "--no-build-isolation", "--out-dir", folder, *kinds, source]
    run(*uv, SOURCE_DATE_EPOCH="1700000000")


def run(*command: str | Path, **variables: str) -> str:
    """What a command prints, run far from the checkout; that it fails is shown with all it said."""
    environ = os.environ | variables
    done = subprocess.run(list(map(str, command)), cwd="/", env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout
