"""Rewrite expressions whose results differ between Flink and Spark, depending on the types of columns.

Column types are known only once a query has been planned.

- In Flink, `a / b` of integers is an integer: the division becomes `a DIV b`.
- In Flink, AVG of integers is an integer: a CAST is added.
- In Flink, FLOOR(t TO unit) has the type of `t`: a CAST is added around DATE_TRUNC, which replaces FLOOR.
- In Flink, CEIL and FLOOR of a DOUBLE are DOUBLE, SIGN of an integer is an integer, and a DATE plus days is a DATE: a
  CAST is added.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from rowkind.avro.schema import Type
from rowkind.service.plan.columns import by_name, columns
from rowkind.service.plan.errors import PlanError, Refusal, SqlSpan, span
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalBinary, LogicalNode
from rowkind.service.plan.logical.per_row import LogicalOver
from rowkind.service.plan.scalar.scalars import Columns, type_of
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.sql.parse import parse
from rowkind.service.plan.tree import expressions, inputs, walk


@dataclass(frozen=True)
class Rewrite:
    """Edits to one expression in the text named `origin`. `at` is the offset of the call's first word, or of the `/`.

    An edit (first, last, text) replaces the characters from offset `first` up to, but excluding, `last` with `text`.
    """

    origin: str
    at: int
    edits: tuple[tuple[int, int, str], ...]


Marks = dict[SqlSpan, str]
Mark = tuple[str, int]
_DAYS = ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR")

_MARKS = re.compile(r" /\*@\d+@\*/")


def marked(sql: str) -> str:
    """After each `/`, add a comment with its position. The parser attaches the comment to the division."""
    for token in reversed(_tokens(sql)):
        if token.token_type is TokenType.SLASH:
            sql = f"{sql[: token.end + 1]} /*@{token.start}@*/{sql[token.end + 1 :]}"
    return sql


def casts(root: LogicalNode, texts: dict[str, str]) -> set[Rewrite]:
    """Return rewrites that add a CAST to each call whose type differs in Flink.

    `root` is the plan of the marked texts, and `texts` maps each origin to its unmarked text. Calls that already have a
    CAST are included: the caller must skip the positions that it has cast before.
    """
    found: set[tuple[SqlSpan, str]] = set()
    for node in walk(root):
        known = _known(node)
        if isinstance(node, LogicalAggregate | LogicalOver):
            for call in node.calls.values():
                if call.function == "avg" and family(known[call.arguments[0]][1]) == "integer":
                    found.update((place, known[call.arguments[0]][1].required.sql) for place in _places(call.at))
        for expression in _expressions(node):
            for called in expression.find_all(exp.Anonymous):
                if (to := _in_flink(called, known)) is not None:
                    found.update((place, to) for place in _places(called))
    twins = defaultdict[SqlSpan | None, set[SqlSpan | None]](set)
    for key, other in _twins(texts):
        twins[span(key)].add(span(other))
        twins[span(other)].add(span(key))
    every = found | {(other, to) for place, to in found for other in twins[place] if other is not None}
    return {_cast(place, to, texts) for place, to in every}


def divisions(root: LogicalNode, texts: dict[str, str]) -> set[Rewrite]:
    """Return rewrites that turn integer divisions into DIV. The arguments are the same as for `casts`."""
    aliased = _marks_of_aliases(texts)
    found = {
        each
        for node in walk(root)
        for expression in _expressions(node)
        for each in _divisions(expression, _known(node), aliased)
    }
    for pair in _twins(texts):
        marks = {mark for each in pair if isinstance(each, exp.Div) and (mark := _mark(each, aliased)) is not None}
        if found & marks:
            found |= marks
    return {_div(origin, at, texts[origin]) for origin, at in found}


def _known(node: LogicalNode) -> Columns:
    return by_name({name: type_ for each in inputs(node) for name, type_ in columns(each).items()})


def _expressions(node: LogicalNode) -> tuple[exp.Expr, ...]:
    return expressions(node) if isinstance(node, LogicalFilter | LogicalProject | LogicalBinary) else ()


def _in_flink(called: exp.Anonymous, known: Columns) -> str | None:
    """Return the type of a call in Flink, or None if it is the same as in Spark."""
    of = _type(called.expressions[-1], known) if called.expressions else None
    match called.name.upper(), of and family(of):
        case "DATE_TRUNC", "local":
            return "TIMESTAMP_NTZ"
        case "DATE_TRUNC", "date":
            return "DATE"
        case "TIMESTAMPADD", "date" if called.expressions[0].name.upper() in _DAYS:
            return "DATE"
        case (("CEIL" | "CEILING" | "FLOOR"), "float") | ("SIGN", "integer"):
            return None if of is None else of.required.sql
    return None


def _divisions(expression: exp.Expr, known: Columns, aliased: Marks) -> Iterator[Mark]:
    """Yield the origin and position of each integer division, including divisions of their integer results."""
    whole: list[exp.Div] = []

    def is_whole(node: exp.Expr) -> bool:
        found = _type(node, known)
        return found is not None and family(found) == "integer"

    def change(node: exp.Expr) -> exp.Expr:
        for child in list(node.iter_expressions()):
            child.replace(change(child))
        if isinstance(node, exp.Div) and is_whole(node.left) and is_whole(node.right):
            whole.append(node)
            return exp.IntDiv(this=node.left.copy(), expression=node.right.copy())
        return node

    change(exp.Paren(this=expression.copy()))
    for node in whole:
        if (mark := _mark(node, aliased)) is not None:
            yield mark


def _mark(node: exp.Div, aliased: Marks) -> Mark | None:
    """Return the position of a division's `/`, which the comment after it contains; None if there is no comment."""
    place, mark = span(node), "".join(node.comments or ())
    if place is None or (at := re.fullmatch(r"\s*@(\d+)@\s*", mark or aliased.get(place, ""))) is None:
        return None
    return place.origin, int(at[1])


def _div(origin: str, at: int, text: str) -> Rewrite:
    """Return the rewrite that replaces the `/` at a position with DIV, with any missing spaces around it."""
    before, behind = ("" if side.isspace() else " " for side in (text[at - 1], text[at + 1]))
    return Rewrite(origin, at, ((at, at + 1, f"{before}DIV{behind}"),))


def _twins(texts: dict[str, str]) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Yield pairs of equal divisions or calls: one in a GROUP BY clause, and one elsewhere in the same SELECT.

    The plan contains such an expression only once.
    """
    for tree in _trees(texts):
        for select in tree.find_all(exp.Select):
            group = select.args.get("group")
            keys = [] if group is None else list(group.find_all(exp.Div, exp.Anonymous))
            rest = [*select.expressions, *(select.args.get(part) for part in ("having", "order", "qualify"))]
            for each in (each for part in rest if part is not None for each in part.find_all(exp.Div, exp.Anonymous)):
                yield from ((key, each) for key in keys if key == each)


def _trees(texts: dict[str, str]) -> Iterator[exp.Expr]:
    for origin, text in texts.items():
        try:
            yield parse(marked(text), origin, origin)
        except (PlanError, Refusal):
            continue  # An invalid view, which no translated query reads.


def _marks_of_aliases(texts: dict[str, str]) -> Marks:
    """Return the comments that the parser attached to an alias, as in `a / b AS c`, by the position of the division."""
    found = {}
    for tree in _trees(texts):
        for alias in tree.find_all(exp.Alias):
            if (place := span(alias.this)) is not None:
                found[place] = "".join(alias.comments or ())
    return found


def _type(node: exp.Expr, known: Columns) -> Type | None:
    try:
        return type_of(node, known)
    except Refusal:
        return None


def _places(call: exp.Expr) -> Iterator[SqlSpan]:
    if (place := span(call)) is not None:
        yield place


def _cast(place: SqlSpan, to: str, texts: dict[str, str]) -> Rewrite:
    """Return the rewrite that adds a CAST around the call whose first word is at `place`."""
    text = texts[place.origin]
    first = place.first - sum(len(each[0]) for each in _MARKS.finditer(marked(text)[: place.first]))
    last = _end_of_call([token for token in _tokens(text) if token.start >= first])
    return Rewrite(place.origin, first, ((first, first, "CAST("), (last, last, f" AS {to})")))


def _end_of_call(tokens: Sequence[Token]) -> int:
    """Return the offset after the call that begins with the first token, including FILTER (…), OVER (…) and OVER w."""
    depth = 0
    for number, token in enumerate(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        following = tokens[number + 1].text.upper() if number + 1 < len(tokens) else ""
        if depth:
            continue
        if token.token_type is TokenType.R_PAREN and following not in ("FILTER", "OVER"):
            return token.end + 1
        if token.text.upper() == "OVER" and following != "(":
            return tokens[number + 1].end + 1
    return tokens[-1].end + 1


def _tokens(sql: str) -> list[Token]:
    return sqlglot.tokenize(sql, read="spark")
