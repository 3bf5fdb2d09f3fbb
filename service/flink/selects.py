"""Find and rename the columns of a query's SELECT list, based on its tokens.

INSERT INTO, and CREATE VIEW with column names, match a query's columns to a table's by position. A job's sink has the
column names of its query instead, so the query's columns must be renamed.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot.tokenizer_core import Token, TokenType

_ENDS = ("FROM", "UNION", "INTERSECT", "EXCEPT", "WHERE", "GROUP", "ORDER", "LIMIT")
SelectItem = tuple[int, int, str | None]
"""An item of a SELECT list: the offset of its first character, the offset after its last, and its name or None."""


def select_list(sql: str) -> list[SelectItem] | None:
    """Return the items of a query's first SELECT, or None if the list has a star or the SELECT is in parentheses."""
    tokens = sqlglot.tokenize(sql, read="spark")
    depths = list(_depths(tokens))
    starts = [at for at, token in enumerate(tokens) if depths[at] == 0 and token.text.upper() == "SELECT"]
    if not starts:
        return None
    at = starts[0] + 1
    while at < len(tokens) and (
        tokens[at].token_type is TokenType.HINT or tokens[at].text.upper() in ("DISTINCT", "ALL")
    ):
        at += 1
    items: list[list[Token]] = [[]]
    for token, depth in zip(tokens[at:], depths[at:], strict=True):
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        if depth == 0 and token.text.upper() in _ENDS and not quoted:
            break
        if depth == 0 and token.token_type is TokenType.COMMA:
            items.append([])
        else:
            items[-1].append(token)
    if not all(items) or any(item[-1].token_type is TokenType.STAR for item in items):
        return None
    return [(item[0].start, item[-1].end + 1, _called(item)) for item in items]


def renamed(sql: str, items: Sequence[SelectItem], names: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return the edits that give the items these names."""
    edits = []
    for (first, last, called), name in zip(items, names, strict=True):
        if called == name:
            continue
        bare = unaliased(sql[first:last])
        edits.append((first + len(bare), last, f" AS {spoken(name)}"))
    return edits


def unaliased(item: str) -> str:
    """Return an item of a SELECT list without its alias."""
    tokens = sqlglot.tokenize(item, read="spark")
    if len(tokens) > 2 and _is_name(tokens[-1]) and not _is_interval(tokens):
        if tokens[-2].token_type is TokenType.ALIAS:
            return item[: tokens[-3].end + 1]
        if _ends_value(tokens[-2]):
            return item[: tokens[-2].end + 1]
    if len(tokens) == 2 and _is_name(tokens[1]) and _ends_value(tokens[0]):
        return item[: tokens[0].end + 1]
    return item


def _called(item: Sequence[Token]) -> str | None:
    last = item[-1]
    if not _is_name(last):
        return None
    if _is_interval(item):
        return None
    if len(item) == 1 or item[-2].token_type in (TokenType.ALIAS, TokenType.DOT) or _ends_value(item[-2]):
        return last.text
    return None


def _is_interval(item: Sequence[Token]) -> bool:
    """Return whether the last word is the unit of an INTERVAL."""
    return len(item) > 2 and item[-3].text.upper() == "INTERVAL"


def _is_name(token: Token) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.NUMBER, TokenType.END, TokenType.NULL) and (
        token.token_type is TokenType.IDENTIFIER or token.text.replace("_", "a").isalnum()
    )


def _ends_value(token: Token) -> bool:
    return token.token_type in (
        *(TokenType.R_PAREN, TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER, TokenType.END),
        *(TokenType.R_BRACKET, TokenType.NULL, TokenType.TRUE, TokenType.FALSE),
    )


def _depths(tokens: Sequence[Token]) -> list[int]:
    """Return how many parentheses and brackets are open at each token."""
    found, depth = [], 0
    for token in tokens:
        opens = token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
        closes = token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET)
        depth -= closes
        found.append(depth)
        depth += opens
    return found


def spoken(name: str) -> str:
    """Return a name as an SQL identifier, in backticks if it needs them."""
    plain = [token.token_type for token in sqlglot.tokenize(name, read="spark")] == [TokenType.VAR]
    return name if plain else f"`{name}`"


def wrapped(columns: Sequence[tuple[str, str, str | None]], where: str, more: Sequence[str] = ()) -> tuple[str, str]:
    """Return the text to put before and after a query, so that its columns are renamed or cast and its rows filtered.

    A column is a tuple of its name in the query, its new name, and the type to cast it to or None. `more` has
    expressions to append to the columns.
    """
    listed = []
    for inner, outer, type_ in columns:
        value = f"CAST({spoken(inner)} AS {type_})" if type_ else spoken(inner)
        listed.append(value if inner == outer and not type_ else f"{value} AS {spoken(outer)}")
    stars = all(inner == outer and not type_ for inner, outer, type_ in columns)
    listed = [*(["*"] if stars else listed), *more]
    before = f"SELECT {', '.join(listed)} FROM (\n  "  # noqa: S608 -- the user's own query
    return before, f"\n){f' WHERE {where}' if where else ''}"
