"""SQL text that is assembled from pieces, each with its position in the script."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Stretch:
    """A piece of SQL, and its position in the script."""

    text: str
    at: int


@dataclass(frozen=True)
class Sql:
    """SQL as a sequence of pieces."""

    pieces: tuple[Stretch, ...] = ()

    def __str__(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    def __add__(self, other: Sql) -> Sql:
        return Sql(self.pieces + other.pieces)

    @property
    def at(self) -> int:
        """The position of the first piece in the script; 0 if there are no pieces."""
        return self.pieces[0].at if self.pieces else 0

    def indented(self) -> Sql:
        """Return the SQL with all lines but the first indented by two more spaces."""
        return Sql(tuple(Stretch(piece.text.replace("\n", "\n  "), piece.at) for piece in self.pieces))

    def source(self, offset: int) -> int:
        """Return the position in the script of the character at `offset`."""
        for piece in self.pieces:
            if offset < len(piece.text):
                return piece.at + (offset if len(piece.text) > 1 else 0)
            offset -= len(piece.text)
        return self.at

    def edited(self, edits: Iterable[tuple[int, int, str]]) -> Sql:
        """Return the SQL with the edits applied. The edits must not overlap.

        An edit (first, last, text) replaces the characters from offset `first` up to, but excluding, `last`.
        """
        found = self
        for first, last, text in sorted(edits, reverse=True):
            found = found.cut(0, first) + Sql((Stretch(text, self.source(first)),)) + found.cut(last, len(str(found)))
        return found

    def cut(self, first: int, last: int) -> Sql:
        """Return the characters from offset `first` up to, but excluding, `last`."""
        found, begin = [], 0
        for piece in self.pieces:
            low, high = max(first - begin, 0), min(last - begin, len(piece.text))
            if low < high:
                found.append(Stretch(piece.text[low:high], piece.at + low))
            begin += len(piece.text)
        return Sql(tuple(found))


def filled(template: str, arguments: tuple[Sql, ...], at: int) -> Sql:
    """Return a template with arguments in place of `{0}`, `{1}`, …. The template's own text has the position `at`."""
    found = Sql()
    for part in re.split(r"(\{\d+\})", template):
        if re.fullmatch(r"\{\d+\}", part):
            found += arguments[int(part[1:-1])]
        elif part:
            found += Sql((Stretch(part, at),))
    return found


def quoted(text: str) -> str:
    """Return text as a Spark SQL string literal, with backslashes as escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
