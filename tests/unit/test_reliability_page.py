"""Each row of the tables about failures in the docs has tests in tests/evidence.md, and all tests named there exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "explanation" / name for name in ("exactly-once.md", "external-systems.md")]
PAGE = "\n".join(page.read_text() for page in PAGES)
EVIDENCE = (ROOT / "tests" / "evidence.md").read_text()
TABLES = {
    "Crashes": "| a crash … | leaves | recovery |",
    "Starts": "| a start … | result topics |",
    "Answers of the registry": "| answer | what the job does | what you do |",
    "Other events": "| event | what the job does | message | metric and alert | what you do |",
    "Lost and changed topics": "| event | what the job does | message | what you do |",
}
"""The sections of tests/evidence.md, and the heads of the tables of the pages to which they belong."""

_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("section", TABLES)
def test_every_row_of_the_page_has_tests(section: str) -> None:
    """A section of tests/evidence.md has the rows of the page's table in order, each with at least one test."""
    promised = rows(PAGE, TABLES[section])
    shown = rows(EVIDENCE, f"### {section}\n\n| row | tests |")
    assert len(promised) > 4
    assert all(all(cells[:2]) for cells in promised), "a row says what happens"
    assert [cells[0] for cells in shown] == [cells[0] for cells in promised]
    assert not [cells[0] for cells in shown if not _NAMED.search(cells[1])], "a row without a test"


def test_every_test_that_is_named_exists() -> None:
    """Every test that tests/evidence.md names exists."""
    named = set(_NAMED.findall(EVIDENCE))
    assert named
    missing = [f"{path}::{test}" for path, test in sorted(named) if not _exists(ROOT / path, test)]
    assert not missing, missing


def rows(text: str, head: str) -> list[list[str]]:
    """Return the cells of the table with this header."""
    _, found, table = text.partition(f"{head}\n")
    assert found, f"there is no table {head}"
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.partition("\n\n")[0].splitlines()[1:]]


def _exists(path: Path, test: str) -> bool:
    """Return whether the file exists and contains the test; an empty name stands for the whole file."""
    if not path.exists():
        return False
    tree = ast.parse(path.read_text())
    return not test or any(isinstance(node, ast.FunctionDef) and node.name == test for node in ast.walk(tree))
