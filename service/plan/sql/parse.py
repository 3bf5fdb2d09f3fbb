"""Parses SQL text in Spark's dialect into sqlglot's tree, and refuses clauses that cannot be planned."""

from __future__ import annotations

import difflib
import logging
import re

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError, TokenError

from rowkind.service.plan.errors import PlanError, Refusal, SqlSpan, mark
from rowkind.service.plan.sql.dialect import RowkindSql
from rowkind.service.plan.sql.quantified import without_all
from rowkind.service.plan.sql.unsupported_dialects import check_dialect, no_statement, no_type

_SUPPORTED = "SELECT … FROM … [JOIN … ON …] [WHERE …] [GROUP BY …]"

_CLAUSES = {
    "sort": "SORT BY has no meaning for a result that keeps changing: remove it",
    "cluster": "CLUSTER BY has no meaning for a result that keeps changing: remove it",
    "distribute": "DISTRIBUTE BY has no meaning here: remove it",
    "into": "SELECT INTO is not supported: the sink in the job file says where the result is written",
    "by_name": "BY NAME is not supported: write the columns in the same order",
    "on": "BY NAME is not supported: write the columns in the same order",
    "side": "a set operation must be UNION, UNION ALL, INTERSECT or EXCEPT",
}
# The parser logs a warning if it parses text as a command. Such text is refused here anyway.
logging.getLogger("sqlglot").setLevel(logging.ERROR)
_UNEXPECTED = "Invalid expression / Unexpected token"
_BEGINNINGS = ("SELECT", "WITH", "FROM", "VALUES")
_KEYWORDS = (
    *("FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER", "LIMIT", "UNION", "INTERSECT", "EXCEPT"),
    *("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "ON", "USING", "LATERAL"),
)
_SELECT = {
    *("expressions", "from_", "joins", "where", "hint", "with_", "kind", "group", "having", "distinct", "windows"),
    *("qualify", "order", "limit", "offset", "laterals"),
}
_SET_OPERATION = {"this", "expression", "distinct", "with_", "order", "limit", "offset"}
_SUBQUERY = {"this", "order", "limit", "offset"}


def parse(sql: str, origin: str, place: str) -> exp.Expr:
    """Parse a string that must contain exactly one query. Raises PlanError and Refusal.

    `origin` is the string's name in the positions of nodes; `place` is its name in messages.
    """
    try:
        statements = sqlglot.parse(sql, read=RowkindSql, error_level=ErrorLevel.IMMEDIATE)
    except ParseError as error:
        raise PlanError(place, *_syntax(error, sql, origin), sql) from None
    except TokenError:
        raise PlanError(place, "the SQL cannot be parsed: a quotation mark or a comment is not closed") from None
    except (SqlglotError, ValueError, TypeError, AttributeError, LookupError) as error:
        # The parser raises other errors for some texts that are not SQL.
        raise PlanError(place, f"the SQL cannot be parsed: {str(error).partition(chr(10))[0]}") from None
    found = [statement for statement in statements if statement is not None]
    if len(found) != 1:
        text = "the SQL contains no query" if not found else "the SQL contains more than one statement"
        raise PlanError(place, f"{text}: expected one {_SUPPORTED}")
    tree = mark(found[0], origin, sql)
    check_dialect(tree)
    return query(without_all(tree))


def query(tree: exp.Expr) -> exp.Expr:
    """Check that a tree is a query whose clauses can be planned, and return the query without redundant parentheses.

    The result is a SELECT or a set operation, or one of these in parentheses followed by ORDER BY … LIMIT. VALUES
    becomes a UNION ALL. Subqueries are not checked. Raises Refusal.
    """
    while isinstance(tree, exp.Subquery) and not any(value for name, value in tree.args.items() if name != "this"):
        tree = tree.this
    match tree:
        case exp.Select():
            known = _SELECT
        case exp.SetOperation():
            known = _SET_OPERATION
        case exp.Subquery() if not tree.alias:
            known = _SUBQUERY
        case exp.Values():
            return values_query(tree)
        case _:
            raise no_statement(tree, _SUPPORTED)
    for name, value in tree.args.items():
        if not value:
            continue
        if name in _CLAUSES:
            at = value[0] if isinstance(value, list) else value
            placed = isinstance(at, exp.Expr) and any("start" in each.meta for each in at.walk())
            raise Refusal(_CLAUSES[name], at if placed else tree)
        if name not in known:
            raise Refusal(f"this kind of query ({name.strip('_')}) is not supported", tree)
    if isinstance(tree, exp.Select) and not tree.expressions:
        raise Refusal("the SELECT list is empty: list the columns of the result, or write *", tree)
    return tree


def values_query(tree: exp.Values) -> exp.Query:
    """Return VALUES as a UNION ALL of SELECTs without FROM. The columns are named col1, col2 and so on."""
    rows: list[exp.Query] = []
    for each in tree.expressions:
        written = each.expressions if isinstance(each, exp.Tuple) else [each]
        items = [exp.alias_(value.copy(), f"col{number}") for number, value in enumerate(written, 1)]
        rows.append(exp.Select(expressions=items))
    while len(rows) > 1:
        # First unite pairs, then pairs of pairs, so that the tree's depth is logarithmic in the number of rows.
        pairs = [exp.Union(this=a, expression=b, distinct=False) for a, b in zip(rows[::2], rows[1::2], strict=False)]
        rows = [*pairs, *rows[len(pairs) * 2 :]]
    return rows[0]


def _syntax(error: ParseError, sql: str, origin: str) -> tuple[str, SqlSpan]:
    first = error.errors[0]
    message = re.sub(r" but got <Token .*", "", str(first["description"])).rstrip(".")
    if message.startswith("Required keyword"):
        message = "a required part is missing"
    line, column = int(first["line"] or 1), int(first["col"] or 1)
    highlight = str(first["highlight"] or "")
    # sqlglot reports the column of the last character of the word at which it failed.
    begin = sum(len(each) + 1 for each in sql.split("\n")[: line - 1])
    last = min(begin + column - 1, max(len(sql) - 1, 0))
    span = SqlSpan(origin, max(last - len(highlight) + 1, begin), last)
    if message == _UNEXPECTED:
        return _unexpected(sql, span)
    return no_type(highlight) or f"syntax error: {message[:1].lower() + message[1:]}", span


def _unexpected(sql: str, span: SqlSpan) -> tuple[str, SqlSpan]:
    """Return the message for a word that the parser did not expect. The cause is often the previous word."""
    tokens = sqlglot.tokenize(sql, read=RowkindSql)
    first = next((each for each in tokens if each.text != "("), tokens[0])
    if first.text.upper() not in _BEGINNINGS and first.start < span.last:
        text = f"syntax error: a query must begin with SELECT or WITH, not {first.text}"
        return text, SqlSpan(span.origin, first.start, first.end)
    before = next((each for each in reversed(tokens) if each.end < span.first), first)
    meant = difflib.get_close_matches(before.text.upper(), _KEYWORDS, n=1)
    if meant and before.text.upper() not in _KEYWORDS:
        text = f"syntax error: {before.text} is not expected here; did you mean {meant[0]}?"
        return text, SqlSpan(span.origin, before.start, before.end)
    return f"syntax error: {sql[span.first : span.last + 1]} is not expected here", span
