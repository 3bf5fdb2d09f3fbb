"""The scripts of Flink's documentation: each gives the result on its page, or is refused with a reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from rowkind.service.flink.job_file import imported
from rowkind.service.flink.script import ScriptError
from rowkind.service.job.load import load
from tests.flink.page_cases import PageCase, cases, pages, pages_without_cases, shown, text_table
from tests.flink.trying import given

CASES = cases()


@pytest.mark.sampled(30)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.page}-{case.name}".replace(" ", "_"))
def test_a_script_of_a_page_gives_what_the_page_shows(tmp_path: Path, case: PageCase) -> None:
    """For batches of 1, 2 and all rows, the result equals the page's; refused scripts have the listed reason."""
    text, told = _imported(case)
    assert case.refused in told
    assert [note for note in case.notes if note not in told] == [], told
    if not text:
        assert case.refused, told
        return
    file = tmp_path / "job.yaml"
    file.write_text(text)
    job = load(file, {})
    changes = list(case.changes(job))
    assert set(case.results) <= set(job.sinks), told
    for sink, result in case.results.items():
        found = given(job, changes, sink, 1, 2, max(len(changes), 3), ended=case.ended)
        assert _bag(map(shown, found)) == _bag(text_table(result))


def test_the_names_of_a_pages_cases_differ() -> None:
    """The names of a page's cases are unique."""
    assert max(Counter((case.page, case.name) for case in CASES).values()) == 1


def test_a_case_has_a_result_or_a_reason() -> None:
    """Every case has a result or a reason for its refusal."""
    assert [case.name for case in CASES if not case.results and not case.refused] == []


def test_each_page_has_cases_or_a_reason() -> None:
    """A page has either cases or a reason for having none, and every page about queries has cases."""
    assert pages().isdisjoint(pages_without_cases())
    assert all(pages_without_cases().values())
    queries = [page for page in pages_without_cases() if page.startswith("sql/reference/queries/")]
    assert queries == ["sql/reference/queries/overview"]


def _imported(case: PageCase) -> tuple[str, str]:
    """Return the job file of a script, empty if it is refused, and the notes or the refusal."""
    try:
        found = imported(f"{case.page}.sql", case.script)
    except ScriptError as refused:
        return "", str(refused)
    return found.text, "\n".join(found.notes)


def _bag(rows: Iterable[Mapping[str, str]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)
