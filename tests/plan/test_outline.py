"""Outlines: they contain every value of their document, and a few documents are stored completely."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.plan.cases import TABLES, cases
from tests.plan.documents import PATHS, document
from tests.plan.outline import outline

DECLARED = YAML(typ="safe").load(TABLES.read_text())["tables"]
NAMED = ("computes", "define", "functions")
"""Keys of objects whose own keys are names from the job."""
FLAGS = ("needs_old_rows", "refreshes", "drops_null_keys", "filter_deletes", "digested", "exact", "of tomorrow")
"""Keys that exist only if they are true, and one that no document has yet."""


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_document_is_the_one_in_its_file(path: Path) -> None:
    """The form and values of some documents equal their files, which `python -m tests.plan` writes."""
    assert document(path) == path.read_text()


def test_documents_have_every_kind_of_step_and_every_key() -> None:
    """Each kind of step and each key of any case is in one of the stored documents."""
    found = {case.path.stem: set(_found(case.document())) for case in cases() if not case.is_refused}
    pinned = set().union(*(found[path.stem] for path in PATHS))
    missing = {each: stem for stem, all_of_it in found.items() for each in all_of_it - pinned}
    assert not missing, "add empty files with these names to tests/plan/documents and run `python -m tests.plan`"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_an_outline_shows_a_change_of_any_value(path: Path) -> None:
    """If any value of a document is changed, dropped or added, the outline changes."""
    sink = json.loads(path.read_text())
    whole = outline(sink, DECLARED)
    for where in _changes(sink):
        assert outline(sink, DECLARED) != whole, where
    assert outline(sink, DECLARED) == whole


def _found(value: Any) -> Iterator[str]:
    """Yield the keys of a document and the kinds of its steps."""
    if isinstance(value, list):
        for each in value:
            yield from _found(each)
    elif isinstance(value, dict):
        yield from value
        yield f"kind: {value.get('kind')}"
        for key, each in value.items():
            if key not in NAMED:
                yield from _found(each)


def _changes(value: Any) -> Iterator[str]:
    """Change one value after the other, yield its path, and restore it after the next step."""
    before = value.copy()
    for key, each in list(before.items() if isinstance(before, dict) else enumerate(before)):
        if isinstance(each, dict | list):
            for where in _changes(each):
                yield f"{key}.{where}"
        else:
            value[key] = f"{each}~" if isinstance(each, str) else each + 1
            yield f"{key} is another"
        if key != "name":
            del value[key]
            yield f"{key} is dropped"
        _restore(value, before)
    for key in FLAGS if isinstance(value, dict) else ():
        if key not in value:
            value[key] = True
            yield f"{key} is added"
            del value[key]


def _restore(value: Any, before: Any) -> None:
    value.clear()
    (value.update if isinstance(value, dict) else value.extend)(before)
