"""The wording of plans and refusals: it equals the two files in `wording/`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rowkind.service.plan.explain.json_document import PROSE
from rowkind.service.plan.explain.render import render
from tests.plan import wording
from tests.plan.cases import Case, cases, planned, without_prose
from tests.plan.constructs import PAGE, constructs


@pytest.mark.parametrize("name", wording.FILES)
def test_the_wording_is_the_one_in_the_file(name: str) -> None:
    """Plans and refusals have exactly the wording in the files, which `python -m tests.plan` writes."""
    assert wording.FILES[name]() == (wording.FOLDER / name).read_text()


def test_the_page_of_constructs_has_all_cases() -> None:
    """The page of constructs is generated from the cases by `python -m tests.plan`."""
    assert constructs() == PAGE.read_text()


def test_the_plans_have_all_advice_and_all_reasons() -> None:
    """The advice, layouts and reasons of all cases are also in the selected plans."""
    said = {case.path.stem: set(_said(_document(case))) for case in cases() if not case.is_refused}
    chosen = set().union(*(said[name] for name in wording.PLANS))
    missing = {about: name for name, all_of_it in said.items() for about in all_of_it - chosen}
    assert not missing, "add one of these cases to PLANS, or another that says the same"


def test_no_sentence_is_in_a_case() -> None:
    """A case contains the plan's JSON document without sentences, so that changed wording does not affect it."""
    whole = _document(next(case for case in cases() if case.path.stem == "not_in"))
    assert set(PROSE) <= set(_keys(whole))
    assert not set(PROSE) & set(_keys(without_prose(whole)))


def _document(case: Case) -> Any:
    job, sink = planned(case)
    ((document,),) = (each["sinks"] for each in json.loads(render(job, {"main": [sink]}, "json"))["queries"])
    return document


def _said(step: dict[str, Any]) -> Iterator[str]:
    """Yield the kinds of sentences of a step and of all steps below it, without names."""
    yield from (each["code"] for each in step.get("advice", []))
    yield from (f"{step['kind']}: {each['layout']}" for each in step["state"])
    if "reason" in step:
        yield f"{step['kind']}: {step['reason']}"
    for each in step["inputs"]:
        yield from _said(each)


def _keys(value: Any) -> Iterator[str]:
    match value:
        case dict():
            yield from value
            for each in value.values():
                yield from _keys(each)
        case list():
            for each in value:
                yield from _keys(each)
