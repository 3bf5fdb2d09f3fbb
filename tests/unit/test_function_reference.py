"""The reference of functions."""

from __future__ import annotations

import pytest

from generators.function_coverage import coverage
from generators.function_reference import PAGE, page
from rowkind.service.job.model import Job
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.pipeline import plan
from rowkind.service.plan.scalar.functions import FUNCTIONS, REFUSED
from rowkind.service.plan.scalar.functions.function import KINDS
from rowkind.service.plan.sql.aggregate_table import REFUSED_AGGREGATES


def test_the_reference_is_up_to_date() -> None:
    """The page is what `python -m generators` writes."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_there_are_many_functions() -> None:
    """The reference lists at least 150 names, each in capitals."""
    assert len(FUNCTIONS) >= 150
    assert all(name == name.upper() for name in FUNCTIONS)


def test_every_kind_of_parameter_is_known() -> None:
    """No function takes what no argument can be."""
    kinds = {kind.removesuffix("...") for known in FUNCTIONS.values() for each in known for kind in each.kinds}
    assert kinds <= set(KINDS)


def test_every_function_of_spark_is_there_or_refused_with_a_reason() -> None:
    """Each scalar function that Spark lists is supported or refused by name; of those with a sense 95 % are here."""
    found = coverage()
    assert not found.missing
    assert found.share >= 0.95


def test_what_is_refused_is_not_there() -> None:
    """A name has a reason to be refused only where no arguments make it a function, or where it has none."""
    assert {name for name in REFUSED if name in FUNCTIONS} == {"UNIX_TIMESTAMP", "TO_UNIX_TIMESTAMP"}


WITH_A_SYNTAX = ("PROCTIME", "TUMBLE", "HOP", "SESSION", "WINDOW", "SESSION_WINDOW", "WINDOW_TIME", ">>>")
"""What is refused in other words where it is not written as it has to be, or is no name."""


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_AGGREGATES])
def test_what_the_reference_refuses_is_refused_with_its_reason(name: str) -> None:
    """No function that is listed as refused works: as a value of a row, or of a group."""
    if name in REFUSED:
        sql = f"SELECT CONCAT({name}({'' if name in FUNCTIONS else 'x'}), 'x') AS r FROM t"
        reason = "" if name in WITH_A_SYNTAX else REFUSED[name]
    else:
        sql, reason = f"SELECT x, {name}(x) AS r FROM t GROUP BY x", REFUSED_AGGREGATES[name]
    table = {"mode": "retract", "columns": {"x": "STRING"}}
    job = Job.model_validate({"job": "j", "tables": {"t": table}, "sinks": {"s": {"mode": "retract", "sql": sql}}})
    with pytest.raises(PlanError) as refused:
        plan(job, "s")
    assert reason in refused.value.text
