"""The examples in the docstrings of planning passes, run as doctests."""

from __future__ import annotations

import doctest
import inspect
import sys

import pytest

from rowkind.service.plan.phases import PASSES, Pass
from tests.plan.logical_text import example


@pytest.mark.parametrize("of", PASSES, ids=lambda of: of.__name__)
def test_a_pass_changes_a_plan_as_its_example_says(of: Pass) -> None:
    """The docstring of a pass has an example, whose plan before and after the pass is the one shown."""
    name = of.__name__
    shown = doctest.DocTestParser().get_doctest(
        inspect.getdoc(of) or "", {name: of, "example": example}, name, sys.modules[of.__module__].__file__, 0
    )
    assert any(f"example({name}," in each.source for each in shown.examples), f"{name} has no example"
    failures = list[str]()
    doctest.DocTestRunner(verbose=False).run(shown, out=failures.append)
    assert not failures, "".join(failures)
