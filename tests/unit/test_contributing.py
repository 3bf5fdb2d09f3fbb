"""CONTRIBUTING.md and the code: its tables name existing files and list every file that names an example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PACKAGES = ("operators", "avro", "service")
MOST_FILES = 9


def counted() -> list[tuple[str, list[str], set[str]]]:
    """Return the rows of the table of newest examples: the kind, the names, and the files with these names."""
    table = TEXT.partition("| newest | names | product files |")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    return [
        (what.strip(), re.findall("`([^`]+)`", names), set(re.findall("`([^`]+)`", files)))
        for what, names, files in rows
    ]


def naming(names: list[str], *, any_case: bool) -> set[str]:
    """Return the product's modules that contain one of these words."""
    word = re.compile(rf"\b(?:{'|'.join(names)})\b", re.IGNORECASE if any_case else 0)
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {str(path.relative_to(ROOT)) for path in paths if word.search(path.read_text())}


def test_an_operator_takes_few_files() -> None:
    """The newest operator is named in at most nine files, and the table lists exactly these."""
    _, names, files = counted()[0]
    assert len(files) <= MOST_FILES
    assert naming(names, any_case=False) == files


@pytest.mark.parametrize(("what", "names", "files"), counted()[1:])
def test_the_newest_example_is_in_the_files_that_are_listed(what: str, names: list[str], files: set[str]) -> None:
    """The table lists exactly the product's modules that contain the example's name as a word."""
    assert naming(names, any_case=True) == files, what


def test_the_files_that_are_named_exist() -> None:
    """Every path in CONTRIBUTING.md exists, relative to the root or to the service folder."""
    named = set(re.findall(r"`((?:[\w-]+/)+[\w.-]*)`", TEXT))
    bases = (ROOT, ROOT / "service")
    missing = {each for each in named if not any((base / each).exists() for base in bases)}
    assert not missing
