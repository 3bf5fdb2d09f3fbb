"""The reference of functions."""

from __future__ import annotations

from rowkind.service.plan.scalar.functions import FUNCTIONS, REFUSED
from rowkind.service.plan.scalar.functions.coverage import coverage
from rowkind.service.plan.scalar.functions.function import KINDS
from rowkind.service.plan.scalar.functions.reference import PAGE, page


def test_the_reference_is_up_to_date() -> None:
    """The page is what `python -m rowkind.service.plan.scalar.functions.reference` writes."""
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
