"""What CONTRIBUTING.md says of the code: its tables name files that are there, and count those that name a thing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PACKAGES = ("operators", "avro", "service")


def counted() -> list[tuple[str, list[str], set[str]]]:
    """The rows of the table of newest examples: what, the names, and the files that have them."""
    table = TEXT.partition("| newest | names | product files |")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    return [
        (what.strip(), re.findall("`([^`]+)`", names), set(re.findall("`([^`]+)`", files)))
        for what, names, files in rows
    ]


@pytest.mark.parametrize(("what", "names", "files"), counted())
def test_the_newest_example_is_in_the_files_that_are_listed(what: str, names: list[str], files: set[str]) -> None:
    """The modules of the product that name it, as a word and in any case, are those of the table and no others."""
    word = re.compile(rf"\b(?:{'|'.join(names)})\b", re.IGNORECASE if what != "operator: the time of processing" else 0)
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    assert {str(path.relative_to(ROOT)) for path in paths if word.search(path.read_text())} == files


def test_the_files_that_are_named_exist() -> None:
    """A path in CONTRIBUTING.md, from the root or from a folder of the service, leads to something."""
    named = set(re.findall(r"`((?:[\w-]+/)+[\w.-]*)`", TEXT))
    bases = (ROOT, ROOT / "service")
    missing = {each for each in named if not any((base / each).exists() for base in bases)}
    assert not missing
