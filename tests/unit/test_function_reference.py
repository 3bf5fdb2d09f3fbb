"""The reference of SQL functions."""

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
    """The reference page equals the output of `python -m generators`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_there_are_many_functions() -> None:
    """The reference lists at least 150 names, all in upper case."""
    assert len(FUNCTIONS) >= 150
    assert all(name == name.upper() for name in FUNCTIONS)


def test_every_kind_of_parameter_is_known() -> None:
    """Every parameter kind in the reference is a known kind."""
    kinds = {kind.removesuffix("...") for known in FUNCTIONS.values() for each in known for kind in each.kinds}
    assert kinds <= set(KINDS)


def test_every_function_of_spark_is_there_or_refused_with_a_reason() -> None:
    """Each scalar function of Spark is supported or refused by name, and 95 % of the applicable ones are supported."""
    found = coverage()
    assert not found.missing
    assert found.share >= 0.95


def test_what_is_refused_is_not_there() -> None:
    """A refused name is not a supported function, except for functions that are refused without arguments."""
    assert {name for name in REFUSED if name in FUNCTIONS} == {"UNIX_TIMESTAMP", "TO_UNIX_TIMESTAMP"}


WITH_A_SYNTAX = ("PROCTIME", "TUMBLE", "HOP", "SESSION", "WINDOW", "SESSION_WINDOW", "WINDOW_TIME", ">>>")
"""Names that are refused with another message, because they have a syntax of their own."""


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_AGGREGATES])
def test_what_the_reference_refuses_is_refused_with_its_reason(name: str) -> None:
    """Every function that the reference lists as refused is refused, with its reason."""
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
