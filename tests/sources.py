"""The modules of the tree as syntax trees, parsed once per process, for tests of the code's style."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TOGETHER = pytest.mark.xdist_group("sources")
"""Tests that parse the whole tree run in one process."""


_LOOKED_AT = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Import,
    ast.ImportFrom,
    ast.Match,
    ast.arguments,
    ast.AnnAssign,
)


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of the module in a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def statements(path: Path) -> tuple[ast.AST, ...]:
    """Return the functions, imports, matches, parameters and annotated names in a file, at any depth."""
    return tuple(each for each in ast.walk(parsed(path)) if isinstance(each, _LOOKED_AT))
