"""docs/constructs.md: every query of the cases that is planned, by its last step, and every one that is refused.

What the page says of a query is shown by its case: that it is planned so and gives what DuckDB gives, or is refused.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.plan.cases import Case, cases
from tests.plan.wording import refused_for
from tests.run.process import ROOT

PAGE = ROOT / "docs" / "constructs.md"
_HEAD = """# Constructs, by example

Every query here is one of the tests: it is planned, and gives after every change what the same SQL gives in DuckDB,
where that has words for it; or it is refused, and why. What they are over is in
[tables.yaml](../tests/plan/tables.yaml), what there is of functions in
[the reference](sql-reference.md), and how it all belongs together in [The SQL](sql.md).

This page is written by `python -m tests.plan`."""
_TITLES = {
    "scan": "Columns, filters and expressions",
    "join": "Joins",
    "semi_join": "EXISTS, IN and SEMI JOIN",
    "anti_join": "NOT EXISTS, NOT IN and ANTI JOIN",
    "mark_join": "Conditions on subqueries among others",
    "aggregate": "GROUP BY, DISTINCT and aggregates",
    "rank": "Ranks and Top-N",
    "deduplicate": "Deduplication",
    "over": "OVER",
    "session": "Sessions",
    "asof_join": "ASOF and versions",
    "lookup": "Lookups by processing time",
    "temporal_filter": "Filters by time, and rows that are final",
    "stamp": "Processing time",
    "match": "MATCH_RECOGNIZE",
    "single_row": "Scalar subqueries that must have one row",
    "normalize": "Tables that leave out old rows",
    "expiry": "Rows that expire and are taken back",
    "union": "UNION",
}
"""By the kind of the last step of the plan."""
_LAST_STEP = re.compile(r"^  (scan(?=_)|\w+(?=_\d+: ))", re.MULTILINE)
"""Its kind in an outline, in which it is the first one below the sink."""


def constructs() -> str:
    """The page."""
    planned: dict[str, list[Case]] = defaultdict(list)
    for case in cases():
        if not case.is_refused:
            last = _LAST_STEP.search(case.expected)
            assert last, f"{case.path.stem} has no step"
            planned[last[0].strip()].append(case)
    sections = [_section(title, planned[kind]) for kind, title in _TITLES.items()]
    assert not planned.keys() - _TITLES.keys(), "a kind of step has no title"
    return "\n\n".join([_HEAD, *sections, "\n".join(_refused())]) + "\n"


def _section(title: str, of: Sequence[Case]) -> str:
    rows = (f"| {_cell(_shows(case))} | `{_cell(case.sql)}` | {_more(case)} |" for case in of)
    return "\n".join([f"## {title}\n", "| what | query | sink and more |\n|---|---|---|", *rows])


def _refused() -> Iterator[str]:
    yield "## Refused\n\n| what | query | why |\n|---|---|---|"
    for case in cases():
        if case.is_refused:
            yield f"| {_cell(_shows(case))} | `{_cell(case.sql)}` | {_cell(refused_for(case)).replace('<', '&lt;')} |"


def _shows(case: Case) -> str:
    return case.head.partition("\n")[0]


def _more(case: Case) -> str:
    """How the sink is written, and what the job says besides."""
    settings = {name: value for name, value in case.settings.items() if name != "views"}
    views = case.settings.get("views", {})
    said = [f"{settings.pop('sink')}", *(f"{name}: {value or 'none'}" for name, value in settings.items())]
    return _cell("; ".join([*said, *(f"view {name}: `{sql}`" for name, sql in views.items())]))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
