"""Functions with regular expressions.

A pattern must be a literal. It is checked, and translated from Java's syntax to RE2's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.casts_of_nested import variables
from rowkind.service.plan.scalar.functions.function import ScalarFunction, maybe
from rowkind.service.plan.scalar.typed import Typed, text_literal
from rowkind.service.plan.scalar.types import BOOLEAN, INT, STRING, array_of

_NOT_ENDING = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_SPACE = r" \t\n\x{0B}\f\r"
_TOKEN = re.compile(
    r"""(?P<escape>\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|p\{[A-Z][a-z]?\}|.))
    |(?P<group>\((?:\?:|\?<[A-Za-z][A-Za-z0-9]*>|(?!\?)))
    |(?P<many>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??)(?![+*?])
    |(?P<class>\[\^?(?:\\.|[^\]\[\\&])(?:\\(?:x[0-9A-Fa-f]{2}|.)|&(?!&)|[^\]\[\\&])*\])
    |(?P<plain>[^\\(\[\]{}*+?])""",
    re.VERBOSE | re.DOTALL,
)
_KNOWN_ESCAPES = "dDwWtnrfAz"
_SYNTAX = (
    "letters, classes, groups, | and quantifiers are; lookahead, lookbehind, \\b, back references and "
    "possessive quantifiers are not"
)


def translated(pattern: str, *, whole_end: bool = False) -> str:
    """Translate a Java pattern to RE2 syntax. If `whole_end` is set, `$` also matches before a final line break.

    Raises Refusal.
    """
    flags = re.match(r"\(\?([is]{1,2})\)", pattern)
    dot = "(?s:.)" if flags and "s" in flags[1] else _NOT_ENDING
    found = "(?i)" if flags and "i" in flags[1] else ""
    at = flags.end() if flags else 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise Refusal(f"{pattern[at : at + 4]!r} in the pattern {pattern!r} is not supported: {_SYNTAX}")
        text = token[0]
        match token.lastgroup:
            case "escape":
                found += _escape(text, pattern)
            case "group":
                found += text.replace("?<", "?P<")
            case "class":
                found += re.sub(r"\\(?:u[0-9A-Fa-f]{4}|.)", lambda each: _escape(each[0], pattern, inside=True), text)
            case "plain" if text == ".":
                found += dot
            case "plain" if text == "$":
                found += r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z" if whole_end else r"\z"
            case _:
                found += text
        at = token.end()
    if _fits_nothing(found) is None:
        raise Refusal(f"{pattern!r} is not a regular expression")
    return found


def _escape(text: str, pattern: str, *, inside: bool = False) -> str:
    letter = text[1]
    if letter == "s" or (letter == "S" and not inside):
        return _SPACE if inside else f"[{'^' if letter == 'S' else ''}{_SPACE}]"
    if letter == "u" and len(text) == 6:
        return rf"\x{{{text[2:]}}}"
    if len(text) > 2 or letter in _KNOWN_ESCAPES or not letter.isalnum():
        return text
    raise Refusal(f"{text} in the pattern {pattern!r} is not supported: {_SYNTAX}")


def _fits_nothing(pattern: str) -> bool | None:
    """Return whether a pattern matches empty text in RE2, or None if RE2 does not accept the pattern."""
    import pyarrow as pa  # noqa: PLC0415 -- few queries have a pattern; others do not load it in `rowkind check`
    import pyarrow.compute as pc  # noqa: PLC0415 -- as above

    try:
        return bool(pc.match_substring_regex(pa.array([""]), pattern)[0].as_py())
    except pa.ArrowInvalid:
        return None


def _checked(value: Typed, *, empty: bool = True) -> str:
    pattern = str(value.literal)
    found = translated(pattern, whole_end=False)
    if not empty and _fits_nothing(found):
        raise Refusal(
            f"the pattern {pattern!r} is not supported: it also matches empty text, which Java and RE2 find in "
            "different places"
        )
    return text_literal(found)


def plain_text(pattern: str) -> str:
    """Return the only text that a pattern matches, as a DuckDB literal. Raises Refusal if it may match another."""
    plain = re.sub(r"\\([^A-Za-z0-9])|\[([^\\^\]\[&])\]", lambda found: f"\\{found[1] or found[2]}", pattern)
    if re.search(r"(?<!\\)(?:\\\\)*[\^$.|?*+()\[\]{}]|\\[A-Za-z0-9]|(?<!\\)(?:\\\\)*\\$", plain) or not plain:
        raise Refusal(f"the pattern {pattern!r} can match more than one text, but it must be plain text here")
    return text_literal(re.sub(r"\\(.)", r"\1", plain, flags=re.DOTALL))


def _like(arguments: Sequence[Typed]) -> str:
    pattern = text_literal(translated(str(arguments[1].literal), whole_end=True))
    return f"regexp_matches({arguments[0].sql}, {pattern})"


def _replaced(arguments: Sequence[Typed]) -> str:
    text, pattern, new = arguments
    written = ""
    for piece in re.findall(r"\\.|\$\d?|.", str(new.literal), re.DOTALL):
        if piece == "$":
            raise Refusal(
                f"in {new.literal!r}, $ must be followed by the number of a group; write \\$ for the character itself"
            )
        if piece[0] == "$":
            written += f"\\{piece[1]}"
        else:
            written += piece[-1].replace("\\", "\\\\")
    groups = re.compile(r"\\.|\[[^\]]*\]|(\((?!\?:))", re.DOTALL).findall(str(pattern.literal))
    highest = max([int(number) for number in re.findall(r"(?<!\\)\$(\d)", str(new.literal))], default=0)
    if highest > sum(bool(group) for group in groups):
        raise Refusal(f"the pattern {pattern.literal!r} has no group {highest}")
    return f"regexp_replace({text.sql}, {_checked(pattern, empty=False)}, {text_literal(written)}, 'g')"


def _extracted(arguments: Sequence[Typed]) -> str:
    text, pattern, *number = arguments
    return f"regexp_extract({text.sql}, {_checked(pattern)}, {_group(pattern, number)})"


def _group(pattern: Typed, number: Sequence[Typed]) -> int:
    """Return the number of the requested group. Raises Refusal if the pattern has no such group."""
    group = int(number[0].literal or "1") if number else 1
    groups = re.findall(r"\\.|\[[^\]]*\]|(\((?!\?:))", str(pattern.literal), re.DOTALL)
    if not 0 <= group <= min(sum(bool(each) for each in groups), 9):
        raise Refusal(f"the pattern {pattern.literal!r} has no group {group}")
    return group


def _counted(arguments: Sequence[Typed]) -> str:
    text, pattern = arguments
    return f"CAST(len(regexp_extract_all({text.sql}, {_checked(pattern, empty=False)})) AS INTEGER)"


def _first(arguments: Sequence[Typed]) -> str:
    text, pattern = arguments
    found = _checked(pattern)
    return f"nullif(regexp_extract({text.sql}, {found}), '')"


def _all(arguments: Sequence[Typed]) -> str:
    text, pattern, *number = arguments
    group = _group(pattern, number)
    found = f"regexp_extract_all({text.sql}, {_checked(pattern, empty=False)}, {group})"
    (each,) = variables(text.sql)
    return f"list_transform({found}, lambda {each}: COALESCE({each}, ''))"


def _place(arguments: Sequence[Typed]) -> str:
    """Return SQL for the position of the first match, or for 0 if there is no match.

    The first match is found as the match that is preceded by the shortest text.
    """
    text, pattern = arguments[:2]
    found = translated(str(pattern.literal))
    before = text_literal(f"(?s)\\A(.*?)(?-s:{found})")
    place = f"length(regexp_extract({text.sql}, {before}, 1)) + 1"
    fits = f"regexp_matches({text.sql}, {text_literal(found)})"
    return f"CAST(CASE WHEN {fits} THEN {place} WHEN NOT {fits} THEN 0 END AS INTEGER)"


def _split(arguments: Sequence[Typed]) -> str:
    text, pattern, *limit = arguments
    most = int(limit[0].literal or "-1") if limit else -1
    try:
        parts = f"string_split({text.sql}, {plain_text(str(pattern.literal))})"
    except Refusal:
        if most > 0:
            raise
        return f"string_split_regex({text.sql}, {_checked(pattern, empty=False)})"
    if most <= 0:
        return parts
    rest = f"array_to_string({parts}[{most}:], {plain_text(str(pattern.literal))})"
    return f"(CASE WHEN len({parts}) > {most} THEN {parts}[:{most - 1}] || [{rest}] ELSE {parts} END)"


_NOTE = "Java's syntax, checked; lookaround and back references are not supported."
_END = f"{_NOTE} $ matches only at the very end of the text."
_Write = Callable[[Sequence[Typed]], str]

FUNCTIONS = (
    ScalarFunction("REGEXP_LIKE RLIKE REGEXP", "text, 'text'", BOOLEAN, _like, _NOTE),
    ScalarFunction("REGEXP_REPLACE", "text, 'text', 'text'", STRING, _replaced, _END),
    ScalarFunction("REGEXP_EXTRACT", "text, 'text'", STRING, _extracted, f"Returns the first group. {_END}"),
    ScalarFunction(
        "REGEXP_EXTRACT",
        "text, 'text', 'int'",
        STRING,
        _extracted,
        "Returns the group of this number, 0 for the whole match.",
    ),
    ScalarFunction("REGEXP_SUBSTR", "text, 'text'", maybe(STRING), _first, _END),
    ScalarFunction("REGEXP_COUNT", "text, 'text'", INT, _counted, _END),
    ScalarFunction("REGEXP_EXTRACT_ALL", "text, 'text'", array_of(STRING), _all, f"Returns the first group. {_END}"),
    ScalarFunction(
        "REGEXP_EXTRACT_ALL", "text, 'text', 'int'", array_of(STRING), _all, "Returns the group of this number."
    ),
    ScalarFunction("REGEXP_INSTR", "text, 'text'", INT, _place, _END),
    ScalarFunction("SPLIT", "text, 'text'", array_of(STRING), _split, _END),
    ScalarFunction(
        "SPLIT", "text, 'text', 'int'", array_of(STRING), _split, "With a limit, the pattern must be plain text."
    ),
)
