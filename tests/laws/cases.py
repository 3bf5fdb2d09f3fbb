"""Every law with the operators for which it is tested."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tests.laws.keyed_subjects import GLOBAL
from tests.laws.keyed_subjects import SUBJECTS as KEYED
from tests.laws.laws import (
    LAWS,
    World,
    another_split_after_a_stop_changes_nothing,
    insert_then_retract_leaves_nothing,
    one_batch_equals_many,
)
from tests.laws.pattern_subjects import PATTERNS
from tests.laws.subjects import SUBJECTS, Subject
from tests.laws.time_subjects import FILTERS, LOOKUPS, LOOKUPS_AT_ONCE, WATERMARKS
from tests.oracle.inputs import Batches

Law = Callable[[Subject, Batches, World], None]

ALL: tuple[Subject, ...] = (
    *SUBJECTS,
    *KEYED,
    *FILTERS,
    *LOOKUPS,
    *LOOKUPS_AT_ONCE,
    *WATERMARKS,
    *GLOBAL,
    *PATTERNS,
)

_OF_CUTS = (one_batch_equals_many, another_split_after_a_stop_changes_nothing)

_WHENEVER = [law for law in LAWS if law not in _OF_CUTS]
"""The laws for operators whose results depend on how a changelog is split into batches."""

CASES: tuple[tuple[Law, Subject], ...] = (
    *itertools.product(LAWS, (*SUBJECTS, *KEYED, *FILTERS, *LOOKUPS)),
    *itertools.product([law for law in LAWS if law is not insert_then_retract_leaves_nothing], (*GLOBAL, *PATTERNS)),
    *itertools.product(_WHENEVER, LOOKUPS_AT_ONCE),
    *itertools.product([law for law in _WHENEVER if law is not insert_then_retract_leaves_nothing], WATERMARKS),
)


def name(value: Law | Subject) -> str:
    """Return the name of a law or an operator for a test id."""
    return str(getattr(value, "__name__", value))
