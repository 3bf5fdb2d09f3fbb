"""What docs/reliability.md says of each kind of start is shown by tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_kind_of_start_names_its_tests() -> None:
    """Each row of the table says what the result topics hold, and which tests show it."""
    _, _, table = PAGE.partition("| a start … | leaves in the result topics | shown by |\n")
    rows = [line.split("|")[1:-1] for line in table.partition("\n\n")[0].splitlines()[1:]]
    assert len(rows) > 5
    for start, holds, shown in rows:
        assert start.strip(), "a row names a kind of start"
        assert holds.strip(), f"nothing is said of a start {start}"
        assert _NAMED.search(shown), f"no test shows a start {start}"


def test_every_test_that_the_page_names_is_there() -> None:
    """A test that was renamed or removed is renamed on the page, too."""
    named = set(_NAMED.findall(PAGE))
    assert named
    missing = [f"{path}::{test}" for path, test in sorted(named) if test not in _tests(ROOT / path)]
    assert not missing, missing


def _tests(path: Path) -> set[str]:
    """The names of the tests in a file."""
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test")}
