"""Row patterns: the meaning of their text, and the programs that define which alternative is tried first."""

from __future__ import annotations

import pytest
from sqlglot import exp

from rowkind.operators.match.pattern import (
    Instruction,
    PatternRepeat,
    PatternVariable,
    first_variables,
    program,
    resumed,
)
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.sql.row_pattern import NamedPattern, row_pattern
from tests.oracle.row_patterns import spelled


def _read(text: str) -> NamedPattern:
    return row_pattern(exp.Var(this=text))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("A", "A"),
        ("a B", "(A B)"),
        ("A B+ C* B?", "(A B{1,} C{0,} B{0,1})"),
        ("A+? B*? C??", "(A{1,}? B{0,}? C{0,1}?)"),
        ("A{2} B{2,} C{2,3} A{,3}? B", "(A{2,2} B{2,} C{2,3} A{0,3}? B)"),
        ("A | B C | C", "(A | (B C) | C)"),
        ("(A | B)+ C", "((A | B){1,} C)"),
        ("A () B", "(A () B)"),
        ("A +", "A{1,}"),
        ("A /* not B */ B -- nor C\n C", "(A B C)"),
        ("`A` ((B))", "(A B)"),
        ("PERMUTE(A, B C)", "((A (B C)) | ((B C) A))"),
        ("A PERMUTE", "(A B)"),
    ],
)
def test_a_text_is_read_as_this_pattern(text: str, read: str) -> None:
    """Variables are numbered by first appearance, in any letter case, and a group with one part is that part."""
    assert spelled(_read(text).pattern) == read


def test_variables_keep_the_name_that_they_have_first() -> None:
    """A variable has the spelling of its first appearance."""
    assert _read("Down up DOWN `a b`").names == ("Down", "up", "a b")


@pytest.mark.parametrize("text", ["A**", "A{", "A{x}", "A{}", "A{0}", "(A", "A)", "A, B", "|", "A | | B", "PERMUTE()"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    """A text that is not a complete pattern is refused."""
    with pytest.raises(Refusal):
        _read(text)


def test_a_greedy_quantifier_tries_one_more_first_and_a_reluctant_one_none() -> None:
    """A greedy quantifier tries another repetition first, and a reluctant one tries to end first."""
    more = (Instruction("split", 1, 3), Instruction("row", 0), Instruction("jump", 0), Instruction("accept"))
    assert program(PatternRepeat(PatternVariable(0), 0, None)) == more
    assert program(PatternRepeat(PatternVariable(0), 0, None, reluctant=True))[0] == Instruction("split", 3, 1)


def test_times_that_could_be_empty_must_take_a_row() -> None:
    """A repetition of a part that can be empty must consume a row, so that the search ends."""
    operations = [each.operation for each in program(_read("(A*)* B").pattern)]
    assert operations == ["split", "mark", "split", "row", "jump", "moved", "jump", "row", "accept"]


@pytest.mark.parametrize(
    ("text", "first"), [("A B", {0}), ("A? B", {0, 1}), ("(A | B)* C", {0, 1, 2}), ("A{2} | B", {0, 1})]
)
def test_the_first_row_may_be_of_these_variables(text: str, first: set[int]) -> None:
    """The variables that can match the first row are derived from the pattern."""
    assert first_variables(program(_read(text).pattern)) == first


@pytest.mark.parametrize(
    ("text", "last", "missing", "first", "possible"),
    [
        ("A B C", True, False, False, True),
        ("A B? C", True, True, False, True),
        ("A* B C", False, False, True, True),
        ("B+ A", True, False, True, True),
        ("B+ A", False, False, True, False),
        ("B B+ A", True, False, False, True),
        ("B B+ A", False, False, True, False),
        ("A | B", True, True, True, False),
    ],
)
def test_where_a_search_may_go_on_is_known_beforehand(
    text: str, *, last: bool, missing: bool, first: bool, possible: bool
) -> None:
    """Planning knows if the SKIP TO variable can have no row, the match's first row, or a later row."""
    pattern = _read(text)
    number = pattern.number("b")
    assert number is not None
    found = resumed(program(pattern.pattern), frozenset([number]), last=last)
    assert (found.missing, found.first, found.possible) == (missing, first, possible)
