"""What CONTRIBUTING.md says of the code: its tables name files that are there, and count those that name a thing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PACKAGES = ("operators", "avro", "service")
MOST_FILES = 8


def counted() -> list[tuple[str, list[str], set[str]]]:
    """The rows of the table of newest examples: what, the names, and the files that have them."""
    table = TEXT.partition("| newest | names | product files |")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    return [
        (what.strip(), re.findall("`([^`]+)`", names), set(re.findall("`([^`]+)`", files)))
        for what, names, files in rows
    ]


def naming(names: list[str], *, any_case: bool) -> set[str]:
    """The modules of the product that have one of these words."""
    word = re.compile(rf"\b(?:{'|'.join(names)})\b", re.IGNORECASE if any_case else 0)
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {str(path.relative_to(ROOT)) for path in paths if word.search(path.read_text())}


def test_an_operator_takes_few_files() -> None:
    """The newest operator needs eight; no pass, trait or printer names it."""
    _, names, files = counted()[0]
    assert len(files) <= MOST_FILES
    assert naming(names, any_case=False) == files


@pytest.mark.parametrize(("what", "names", "files"), counted()[1:])
def test_the_newest_example_is_in_the_files_that_are_listed(what: str, names: list[str], files: set[str]) -> None:
    """The modules of the product that name it, as a word and in any case, are those of the table and no others."""
    assert naming(names, any_case=True) == files, what


def test_the_files_that_are_named_exist() -> None:
    """A path in CONTRIBUTING.md, from the root or from a folder of the service, leads to something."""
    named = set(re.findall(r"`((?:[\w-]+/)+[\w.-]*)`", TEXT))
    bases = (ROOT, ROOT / "service")
    missing = {each for each in named if not any((base / each).exists() for base in bases)}
    assert not missing
