"""Every law with every operator that it is shown for."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tests.laws.keyed_subjects import GLOBAL
from tests.laws.keyed_subjects import SUBJECTS as KEYED
from tests.laws.laws import LAWS, World, insert_then_retract_leaves_nothing
from tests.laws.pattern_subjects import PATTERNS
from tests.laws.subjects import SUBJECTS, Subject
from tests.oracle.inputs import Batches

Law = Callable[[Subject, Batches, World], None]

ALL: tuple[Subject, ...] = (*SUBJECTS, *KEYED, *GLOBAL, *PATTERNS)

CASES: tuple[tuple[Law, Subject], ...] = (
    *itertools.product(LAWS, (*SUBJECTS, *KEYED)),
    *itertools.product([law for law in LAWS if law is not insert_then_retract_leaves_nothing], (*GLOBAL, *PATTERNS)),
)


def name(value: Law | Subject) -> str:
    """How a law or an operator is called in the name of a test."""
    return str(getattr(value, "__name__", value))
