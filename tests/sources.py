"""The modules of the tree as syntax trees, each parsed once per process, for the tests of how the code is written."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TOGETHER = pytest.mark.xdist_group("sources")
"""Tests that parse the whole tree run in one process."""


@cache
def parsed(path: Path) -> ast.Module:
    """The module in a file."""
    return ast.parse(path.read_text(encoding="utf-8"))
