"""Replacement of the planner's generated names with words: `window_start#last` becomes `last time of window_start`.

Generated names contain a `#`, so no query can use them. Values for programs contain the generated names unchanged.
"""

from __future__ import annotations

import re
from dataclasses import replace

from rowkind.service.plan.explain.description import Description, QueryDescription, Step, StepState
from rowkind.service.plan.explain.records import TIED

_MADE_UP = re.compile(r"`(\w*)#([\w .]+)`|(\w*)#(\w+)")
_WORDS = {
    "last": "last time",
    "first": "part",
    "between": "larger part",
    "begins": "begin",
    "ends": "end",
    "row": "digest of the row",
}


def with_display_names(query: QueryDescription) -> QueryDescription:
    """Return the description with generated names replaced in all text."""
    return replace(query, sinks=tuple(map(_plan, query.sinks)))


def display_text(text: str) -> str:
    """Return the text with generated names replaced by words."""
    return _MADE_UP.sub(_word, text)


def _word(found: re.Match[str]) -> str:
    of, what = (quoted or bare or "" for quoted, bare in zip(found.groups()[:2], found.groups()[2:], strict=True))
    name = _WORDS.get(what, what) + (f" of {of}" if of else "")
    if " " not in name:
        return name
    return f"`{name}`" if found[0].startswith("`") else name.replace(" ", TIED)


def _plan(description: Description) -> Description:
    advice = tuple(replace(each, text=display_text(each.text)) for each in description.advice)
    return replace(description, root=_step(description.root), advice=advice)


def _step(step: Step) -> Step:
    return replace(
        step,
        title=display_text(step.title),
        facts=tuple(replace(each, text=display_text(each.text)) for each in step.facts),
        state=tuple(map(_state, step.state)),
        inputs=tuple(map(_step, step.inputs)),
    )


def _state(state: StepState) -> StepState:
    reason = None if state.reason is None else display_text(state.reason)
    return replace(state, layout=display_text(state.layout), reason=reason, kept=display_text(state.kept))
