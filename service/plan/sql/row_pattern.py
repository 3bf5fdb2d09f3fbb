"""The parser for the pattern in PATTERN (…).

    A B+ C?            a sequence with quantifiers: * + ? {n} {n,} {n,m} {,m}; a following ? makes them reluctant
    (A | B C) D        groups, and alternatives; earlier alternatives are preferred
    PERMUTE(A, B)      all orders of its parts, in lexicographic order of the parts' positions

Anchors are refused, because the first and last row of a stream are not known. Exclusions are also refused.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from rowkind.operators.match.pattern import (
    Pattern,
    PatternChoice,
    PatternRepeat,
    PatternSequence,
    PatternVariable,
    can_be_empty,
    steps,
)
from rowkind.service.plan.errors import Refusal

_TOKEN = re.compile(
    r"\s+|--[^\n]*|/\*.*?\*/|(?P<name>[^\W\d]\w*|`[^`]+`)|(?P<number>\d+)|(?P<mark>\{-|-\}|.)", re.DOTALL
)
_MOST_STEPS = 5_000
_MOST_PERMUTED = 6
_EXAMPLE = "a pattern must be written as in PATTERN (A B+ (C | D)?)"


@dataclass(frozen=True)
class NamedPattern:
    """A pattern, the names of its variables by number, and the position at which each name first appears in the SQL."""

    pattern: Pattern
    names: tuple[str, ...]
    places: tuple[exp.Expr, ...]

    def number(self, name: str) -> int | None:
        """Return a variable's number, or None if there is no such variable. Names are case-insensitive."""
        return next((number for number, own in enumerate(self.names) if own.lower() == name.lower()), None)


def row_pattern(text: exp.Expr) -> NamedPattern:
    """Parse the pattern in the parentheses of PATTERN. Raises Refusal."""
    reading = _PatternReading(text, list(_tokens(text.name)))
    pattern = reading.choice()
    if reading.next is not None:
        raise reading.refusal(f"{reading.next.text} is not expected here: {_EXAMPLE}")
    if can_be_empty(pattern):
        raise Refusal(
            "this pattern can match zero rows, so it would match everywhere: require at least one row, for "
            "example with + instead of *",
            text,
        )
    if steps(pattern) > _MOST_STEPS:
        raise Refusal(
            f"this pattern is too large: it has more than {_MOST_STEPS} steps when expanded; count rows by a "
            "condition in DEFINE instead, as in COUNT(A.x) <= 1000",
            text,
        )
    return NamedPattern(pattern, tuple(reading.names.values()), tuple(reading.places))


@dataclass(frozen=True)
class _PatternWord:
    text: str
    kind: str
    first: int
    stop: int


def _tokens(text: str) -> Iterator[_PatternWord]:
    for found in _TOKEN.finditer(text):
        if found.lastgroup is not None:
            yield _PatternWord(found[0], found.lastgroup, found.start(), found.end())


@dataclass
class _PatternReading:
    """A recursive-descent parser over the words of a pattern."""

    text: exp.Expr
    words: list[_PatternWord]
    at: int = 0
    names: dict[str, str] = field(default_factory=dict)
    places: list[exp.Expr] = field(default_factory=list)

    @property
    def next(self) -> _PatternWord | None:
        return self.words[self.at] if self.at < len(self.words) else None

    def choice(self) -> Pattern:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else PatternChoice(tuple(parts))

    def refusal(self, text: str, word: _PatternWord | None = None) -> Refusal:
        return Refusal(text, self._place(word or self.next))

    def _sequence(self) -> Pattern:
        parts: list[Pattern] = []
        while self.next is not None and self.next.text not in ("|", ")", ","):
            parts.append(self._quantified())
        if not parts:
            raise self.refusal(f"a variable or a group is missing here: {_EXAMPLE}")
        return parts[0] if len(parts) == 1 else PatternSequence(tuple(parts))

    def _quantified(self) -> Pattern:
        part = self._one()
        bounds = self._bounds()
        if bounds is None:
            return part
        reluctant = self._take("?")
        if self.next is not None and self.next.text in ("*", "+", "?", "{"):
            raise self.refusal(
                "a variable or a group can have only one quantifier: put parentheses around the first one"
            )
        return PatternRepeat(part, *bounds, reluctant)

    def _one(self) -> Pattern:
        word = self.next
        assert word is not None, "the caller has checked that a word follows"
        self.at += 1
        if word.kind == "name":
            if word.text.upper() == "PERMUTE" and self._take("("):
                return self._permuted(word)
            return self._variable(word)
        match word.text:
            case "(":
                if self._take(")"):
                    return PatternSequence(())
                part = self.choice()
                self._close()
                return part
            case "^" | "$":
                what = "first" if word.text == "^" else "last"
                raise self.refusal(
                    f"the anchor {word.text} is not supported, because a stream has no {what} row: use a "
                    "condition in DEFINE",
                    word,
                )
            case "{-":
                raise self.refusal(
                    "the exclusion {- … -} is not supported: write ONE ROW PER MATCH, or filter rows by "
                    "CLASSIFIER() in WHERE",
                    word,
                )
        raise self.refusal(f"{word.text} is not expected here: {_EXAMPLE}", word)

    def _variable(self, word: _PatternWord) -> PatternVariable:
        name = word.text.strip("`")
        if name.lower() not in self.names:
            self.names[name.lower()] = name
            self.places.append(self._place(word))
        return PatternVariable(list(self.names).index(name.lower()))

    def _permuted(self, word: _PatternWord) -> Pattern:
        parts = [self.choice()]
        while self._take(","):
            parts.append(self.choice())
        self._close()
        if len(parts) > _MOST_PERMUTED:
            raise self.refusal(f"PERMUTE takes at most {_MOST_PERMUTED} parts, which already have 720 orders", word)
        return PatternChoice(tuple(PatternSequence(order) for order in itertools.permutations(parts)))

    def _bounds(self) -> tuple[int, int | None] | None:
        word = self.next
        if word is None or word.text not in ("*", "+", "?", "{"):
            return None
        self.at += 1
        if word.text != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[word.text]
        least = self._number()
        most = self._number() if (several := self._take(",")) else least
        if not self._take("}") or (least is None and most is None):
            raise self.refusal("a quantifier in braces must be {n}, {n,}, {n,m} or {,m}", word)
        if most is not None and (most < (least or 0) or most == 0):
            raise self.refusal(
                "the second bound of a quantifier must be greater than 0 and not less than the first bound", word
            )
        assert several or least is not None, "without a comma, the only number is both bounds"
        return least or 0, most

    def _number(self) -> int | None:
        word = self.next
        if word is None or word.kind != "number":
            return None
        self.at += 1
        return int(word.text)

    def _take(self, text: str) -> bool:
        if self.next is None or self.next.text != text:
            return False
        self.at += 1
        return True

    def _close(self) -> None:
        if not self._take(")"):
            raise self.refusal(f"a parenthesis is not closed: {_EXAMPLE}")

    def _place(self, word: _PatternWord | None) -> exp.Expr:
        """Return a node with the position of a word or, if `word` is None, of the pattern's last word in the SQL."""
        word = word or self.words[-1]
        piece = exp.Var(this=word.text)
        if "start" in self.text.meta:
            begin = self.text.meta["start"]
            piece.meta.update({**self.text.meta, "start": begin + word.first, "end": begin + word.stop - 1})
        return piece
