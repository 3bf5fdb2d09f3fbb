"""Compare rows with the expected rows, and show the differences as a table."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rowkind.quantities import counted, shortened
from rowkind.service.testing.suite import OP, ComparedRow

CLOSE = 1e-9
"""Floating-point numbers are equal if their relative difference is at most this."""

_WIDEST = 60
"""The longest text in a cell. The rest of a longer text is cut off."""

DiffMark = Literal["head", "missing", "unexpected", "expected", "actual", "differs"]
Style = Callable[[str, DiffMark], str]
"""Returns a text in the style of a mark; the text's width on the screen stays the same."""


@dataclass(frozen=True)
class Differences:
    """The rows that differ: pairs of an expected row and the row that is most like it, and rows without such a row.

    `equal` is the number of expected rows that were found.
    """

    columns: Sequence[str]
    pairs: Sequence[tuple[ComparedRow, ComparedRow]]
    missing: Sequence[ComparedRow]
    unexpected: Sequence[ComparedRow]
    equal: int

    @property
    def summary(self) -> str:
        """The numbers of rows that differ, in words."""
        parts = [
            f"{len(rows)} {word}"
            for rows, word in ((self.pairs, "different"), (self.missing, "missing"), (self.unexpected, "unexpected"))
            if rows
        ]
        return f"{', '.join(parts)}; {counted(self.equal, 'row')} as expected"


def differences(
    expected: Sequence[ComparedRow], actual: Sequence[ComparedRow], columns: Sequence[str], key: Sequence[str]
) -> Differences | None:
    """Compare two multisets of rows; return None if they are equal.

    Only the columns that an expected row names are compared. `columns`: the order in which columns are shown. `key`:
    the columns by which an expected row and an actual row belong together, even if all other columns differ.
    """
    found = matches(expected, actual)
    missing = [row for row, at in zip(expected, found, strict=True) if at is None]
    taken = {at for at in found if at is not None}
    unexpected = [row for at, row in enumerate(actual) if at not in taken]
    if not missing and not unexpected:
        return None
    named = {name for row in expected for name in row} or {*columns, *(name for row in actual for name in row)}
    pairs, missing, unexpected = _paired(missing, unexpected, key)
    shown = [name for name in (OP, *columns) if name in named]
    return Differences(shown, pairs, missing, unexpected, len(taken))


def matches(expected: Sequence[ComparedRow], actual: Sequence[ComparedRow]) -> list[int | None]:
    """Return for each expected row the index of its own actual row, the first equal one that is left, or None."""
    left, found = list(range(len(actual))), list[int | None]()
    for row in expected:
        at = next((at for at in left if all(_equal(value, actual[at].get(name)) for name, value in row.items())), None)
        found.append(at)
        if at is not None:
            left.remove(at)
    return found


def out_of_order(
    expected: Sequence[ComparedRow], actual: Sequence[ComparedRow], key: Sequence[str]
) -> tuple[ComparedRow, ComparedRow] | None:
    """Return two changes of one key that arrived in another order than expected, the first one first, or None.

    Each expected change must have a match. Without a key, the order is not compared.
    """
    place = {at: number for number, at in enumerate(matches(expected, actual))}
    last: dict[str, tuple[int, ComparedRow]] = defaultdict(lambda: (-1, {}))
    for at, row in enumerate(actual if key else ()):
        of = json.dumps([row.get(name) for name in key])
        number, before = last[of]
        if place[at] < number:
            return before, row
        last[of] = place[at], row
    return None


def _paired(
    missing: Sequence[ComparedRow], unexpected: Sequence[ComparedRow], key: Sequence[str]
) -> tuple[list[tuple[ComparedRow, ComparedRow]], list[ComparedRow], list[ComparedRow]]:
    pairs, alone, left = [], [], list(unexpected)
    for row in missing:
        by_key = bool(key) and all(name in row for name in key)
        alike = [
            (sum(_equal(value, other.get(name)) for name, value in row.items()), -at)
            for at, other in enumerate(left)
            if not by_key or all(_equal(row[name], other.get(name)) for name in key)
        ]
        score, at = max(alike, default=(0, 0))
        if score:
            pairs.append((row, left.pop(-at)))
        else:
            alone.append(row)
    if len(alone) == len(left) == 1 and not (key and all(name in alone[0] for name in key)):
        pairs.append((alone.pop(), left.pop()))
    return pairs, alone, left


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=CLOSE)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    return bool(one == other)


def plain(text: str, _: DiffMark) -> str:
    """Return the text without a style."""
    return text


def table(of: Differences, style: Style = plain, labels: tuple[str, str] = ("expected", "actual")) -> Iterator[str]:
    """Yield the lines of an aligned table of the differences. The cells of a pair that differ are underlined.

    `labels`: the names of the two rows of a pair.
    """
    lines: list[tuple[str, DiffMark, ComparedRow, ComparedRow]] = []
    for row, other in of.pairs:
        lines += [(labels[0], "expected", row, other), (labels[1], "actual", other, row)]
    lines += [("missing", "missing", row, row) for row in of.missing]
    lines += [("unexpected", "unexpected", row, row) for row in of.unexpected]
    heads = ["", *(name or "op" for name in of.columns)]
    cells = [[label, *(_cell(row, name) for name in of.columns)] for label, _, row, _ in lines]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    yield _line(heads, widths, ["head"] * len(heads), style)
    for (_, mark, row, other), texts in zip(lines, cells, strict=True):
        differs = [name in row and name in other and not _equal(row[name], other[name]) for name in of.columns]
        marks: list[DiffMark] = [mark, *("differs" if each else mark for each in differs)]
        yield _line(texts, widths, marks, style)
        if mark == "actual":
            under = ["^" * len(text) if each else "" for each, text in zip([False, *differs], texts, strict=True)]
            yield _line(under, widths, marks, style)


def _line(texts: Sequence[str], widths: Sequence[int], marks: Sequence[DiffMark], style: Style) -> str:
    last = max((at for at, text in enumerate(texts) if text), default=0)
    cells = zip(texts, widths, marks, strict=True)
    shown = [style(text if at == last else text.ljust(width), mark) for at, (text, width, mark) in enumerate(cells)]
    return "  ".join(shown[: last + 1])


def row_text(row: ComparedRow) -> str:
    """Return a row on one line."""
    members = [f"{name or 'op'}: {_cell(row, name)}" for name in row]
    return f"{{{', '.join(members)}}}"


def _cell(row: ComparedRow, name: str) -> str:
    """Return the text of a cell; a column that the row does not have is empty."""
    if name not in row:
        return ""
    value = row[name]
    text = "NULL" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text.replace("\n", "\\n"), _WIDEST)
