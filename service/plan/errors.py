"""Planning errors.

PlanError      an error for the user: file, line, sink, position in the SQL, reason, and what to write instead
QueriesError   the planning errors of several queries, raised together
Refusal        an error inside a pass, where the position is known only as a node of the parsed SQL
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from rowkind.errors import REFUSED, RowkindError

_WIDTH = 100
_ORIGIN = "origin"
_WORD = "word"


class Refusal(Exception):  # noqa: N818 -- the name says what it is
    """The rejection of a query, with its cause: a part of the SQL, or a field of the job file."""

    def __init__(self, text: str, at: exp.Expr | None = None, field: str = "sql") -> None:
        self.text = text
        self.at = at
        self.field = field
        super().__init__(text)


class PlanError(RowkindError):
    """A query that Rowkind cannot run as written. The message fits on a screen and says what to change.

    `span` is the part of `sql` that caused the error, or None if the error concerns no particular part.
    """

    exit_code = REFUSED

    def __init__(self, place: str, text: str, span: SqlSpan | None = None, sql: str = "") -> None:
        self.place = place
        self.text = text
        self.span = span
        self.sql = sql
        super().__init__(f"{place}: {text}{f', {span.show(sql)}' if span else ''}")

    def __reduce__(self) -> tuple[type[PlanError], tuple[str, str, SqlSpan | None, str]]:
        return type(self), (self.place, self.text, self.span, self.sql)


class QueriesError(PlanError):
    """The errors of several queries: the first query's PlanError, with the messages of all queries in its text."""

    def __init__(self, errors: Sequence[PlanError]) -> None:
        first = errors[0]
        super().__init__(first.place, first.text, first.span, first.sql)
        self.errors = tuple(errors)
        self.args = ("\n".join(map(str, errors)),)

    def __reduce__(self) -> tuple[type[QueriesError], tuple[tuple[PlanError, ...]]]:  # type: ignore[override]
        return type(self), (self.errors,)


@dataclass(frozen=True)
class SqlSpan:
    """A range of characters in an SQL text. `first` and `last` are inclusive."""

    origin: str
    first: int
    last: int

    def show(self, sql: str) -> str:
        """Return the position, such as `line 2, column 5`, followed by that line of SQL with carets under the range."""
        begin = sql.rfind("\n", 0, self.first) + 1
        end = sql.find("\n", begin)
        line = sql[begin : end if end >= 0 else len(sql)]
        column = self.first - begin
        width = max(1, min(self.last, begin + len(line) - 1) - self.first + 1)
        shift = max(0, column - _WIDTH // 2) if len(line) > _WIDTH else 0
        shown = line[shift : shift + _WIDTH]
        width = min(width, max(1, len(shown) - (column - shift)))
        number = sql.count("\n", 0, self.first) + 1
        head = f"line {number}, column {column + 1}"
        return f"{head}\n    {shown}\n    {' ' * (column - shift)}{'^' * width}"


def mark(tree: exp.Expr, origin: str, sql: str) -> exp.Expr:
    """Record the origin and the first word of every node of a parsed SQL text, and return the tree."""
    _place_hints(tree, sql)
    for node in tree.walk():
        if "start" in node.meta:
            node.meta[_ORIGIN] = origin
            node.meta[_WORD] = sql[node.meta["start"] : node.meta["end"] + 1]
    return tree


def _place_hints(tree: exp.Expr, sql: str) -> None:
    """Correct the positions of hints, which the parser counts from the start of each comment."""
    hints = list(tree.find_all(exp.Hint))
    tokens = (
        [token for token in sqlglot.tokenize(sql, read="spark") if token.token_type.name == "HINT"] if hints else []
    )
    for hint in hints:
        placed = [node for node in hint.walk() if "start" in node.meta]
        for token in tokens:
            begin = token.start + len("/*+")
            texts = [sql[begin + node.meta["start"] : begin + node.meta["end"] + 1].strip("'`\"") for node in placed]
            if texts == [node.name for node in placed]:
                for node in placed:
                    node.meta.update({"start": node.meta["start"] + begin, "end": node.meta["end"] + begin})
                hint.meta.update({"start": token.start, "end": token.end})
                tokens.remove(token)
                break


def word(node: exp.Func) -> str:
    """Return the name of a function as the user wrote it, in capitals."""
    return (written(node) or str(node.this if isinstance(node, exp.Anonymous) else node.sql_name())).upper()


def written(node: exp.Expr) -> str:
    """Return a node's first word as the user wrote it, or an empty string if the node is not in the user's SQL."""
    return str(node.meta.get(_WORD) or "")


def enclosing_span(node: exp.Expr | None) -> SqlSpan | None:
    """Return the range of a node or of its nearest ancestor with a known position, or None if there is none."""
    while node is not None:
        if (found := span(node)) is not None:
            return found
        node = node.parent
    return None


def span(node: exp.Expr) -> SqlSpan | None:
    """Return a node's range in the SQL, from its first to its last word. Words without a position are ignored.

    Return None if no word has a known position.
    """
    found = [each.meta for each in node.walk() if _ORIGIN in each.meta]
    if not found:
        return None
    origin = found[0][_ORIGIN]
    own = [meta for meta in found if meta[_ORIGIN] == origin]
    return SqlSpan(origin, min(meta["start"] for meta in own), max(meta["end"] for meta in own))
