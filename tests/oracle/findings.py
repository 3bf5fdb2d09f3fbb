"""What an oracle says where an operator is wrong: a text, None where it is right.

An operator that fails is wrong like one whose output is, and its changelog is shrunk in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec

from rowkind.operators.columns.batch import Emitted
from tests.changelogs import Row, changed, refreshed

_Given = ParamSpec("_Given")


class _FailedError(Exception):
    """An operator failed on a batch."""


def finding(difference: Callable[_Given, str | None]) -> Callable[_Given, str | None]:
    """The same comparison, which says so where the operator fails inside of `operating`."""

    @wraps(difference)
    def found(*given: _Given.args, **named: _Given.kwargs) -> str | None:
        try:
            return difference(*given, **named)
        except _FailedError as failed:
            return str(failed)

    return found


@contextmanager
def operating(number: int) -> Iterator[None]:
    """Where an operator works on batch `number`."""
    try:
        yield
    except Exception as error:  # whatever it is, it is a finding
        raise _FailedError(f"batch {number}: {error!r}") from error


def views_differ(views: Sequence[Counter[Row]], expected: Mapping[int, Counter[Row]]) -> str | None:
    """The first view that is another than expected; a batch that nothing is expected of leaves no rows."""
    for number, view in enumerate(views):
        if view != expected.get(number, Counter()):
            return f"after batch {number}: {dict(view)}, expected {dict(expected.get(number, Counter()))}"
    return None


def changes_differ(
    number: int, emitted: Emitted, expected: Counter[Row], expected_refreshes: Counter[Row] | None = None
) -> str | None:
    """Whether a batch emits other changes, as a multiset with signs, or other refreshes than expected."""
    found = changed(emitted.rows)
    if found != expected:
        return f"batch {number} emits {dict(found)}, expected {dict(expected)}"
    again, expected = refreshed(emitted), expected_refreshes or Counter()
    return f"batch {number} refreshes {dict(again)}, expected {dict(expected)}" if again != expected else None
