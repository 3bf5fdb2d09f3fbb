"""What Flink and Spark compute otherwise by the types of columns, which only a plan knows.

- `a / b` of whole numbers is whole in Flink: `a DIV b`.
- AVG of whole numbers is whole in Flink: a CAST around it.
- FLOOR(t TO unit) has the type of `t` in Flink: a CAST around DATE_TRUNC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from rowkind.service.plan.columns import by_name, columns
from rowkind.service.plan.errors import PlanError, Refusal, SqlSpan, span
from rowkind.service.plan.logical import (
    LogicalAggregate,
    LogicalFilter,
    LogicalJoin,
    LogicalNode,
    LogicalProject,
    inputs,
    walk,
)
from rowkind.service.plan.scalar.scalars import Columns, compile_scalar
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.sql.parse import parse

Edit = tuple[int, int, str]
"""The characters of a text from the first to the second are to be the third instead."""

Marks = dict[SqlSpan, str]

_MARKS = re.compile(r" /\*@\d+@\*/")


def marked(sql: str) -> str:
    """The text with a comment behind each `/`, which the parser keeps with the division, wherever its operands are."""
    for token in reversed(_tokens(sql)):
        if token.token_type is TokenType.SLASH:
            sql = f"{sql[: token.end + 1]} /*@{token.start}@*/{sql[token.end + 1 :]}"
    return sql


def edits(root: LogicalNode, texts: dict[str, str]) -> dict[str, set[Edit]]:
    """How `texts`, by what the plan calls their origin, are to be written otherwise; the plan is of `marked` texts."""
    found: dict[str, set[Edit]] = {origin: set() for origin in texts}
    aliased = _marks_of_aliases(texts)
    for node in walk(root):
        for place, edit in _of_node(node, texts, aliased):
            found[place.origin].add(edit)
    return found


def _of_node(node: LogicalNode, texts: dict[str, str], aliased: Marks) -> Iterator[tuple[SqlSpan, Edit]]:
    known = by_name({name: type_ for each in inputs(node) for name, type_ in columns(each).items()})
    match node:
        case LogicalFilter():
            expressions = node.conjuncts
        case LogicalProject():
            expressions = tuple(node.outputs.values())
        case LogicalJoin():
            expressions = node.condition
        case LogicalAggregate():
            for call in node.calls.values():
                if call.function == "avg" and family(known[call.arguments[0]][1]) == "integer":
                    yield from _cast(call.at, known[call.arguments[0]][1].required.sql, texts)
            return
        case _:
            return
    for expression in expressions:
        yield from _divisions(expression, known, aliased)
        for called in expression.find_all(exp.Anonymous):
            if called.name.upper() == "DATE_TRUNC":
                wanted = {"local": "TIMESTAMP_NTZ", "date": "DATE"}.get(_family(called.expressions[-1], known))
                if wanted is not None and not isinstance(called.parent, exp.Cast):
                    yield from _cast(called, wanted, texts)


def _divisions(expression: exp.Expr, known: Columns, aliased: Marks) -> Iterator[tuple[SqlSpan, Edit]]:
    """The divisions of whole numbers, which give whole numbers that are divided in turn."""
    whole: list[exp.Div] = []

    def change(node: exp.Expr) -> exp.Expr:
        children = {id(each): each for each in node.iter_expressions()}
        for child in children.values():
            child.replace(change(child))
        if isinstance(node, exp.Div) and _family(node.left, known) == _family(node.right, known) == "integer":
            whole.append(node)
            return exp.IntDiv(this=node.left.copy(), expression=node.right.copy())
        return node

    change(exp.Paren(this=expression.copy()))
    for node in whole:
        place, mark = span(node), "".join(node.comments or ())
        if place is not None and (at := re.fullmatch(r"\s*@(\d+)@\s*", mark or aliased.get(place, ""))) is not None:
            yield place, (int(at[1]), int(at[1]) + 1, "DIV")


def _marks_of_aliases(texts: dict[str, str]) -> Marks:
    """The marks that the parser gave to aliases, `a / b AS c`, by where their divisions stand."""
    found = {}
    for origin, text in texts.items():
        try:
            tree = parse(marked(text), origin, origin)
        except (PlanError, Refusal):
            continue  # A view that nobody reads so far.
        for alias in tree.find_all(exp.Alias):
            if (place := span(alias.this)) is not None:
                found[place] = "".join(alias.comments or ())
    return found


def _family(node: exp.Expr, known: Columns) -> str:
    try:
        return family(compile_scalar(node, known).type) or ""
    except Refusal:
        return ""


def _cast(call: exp.Expr, to: str, texts: dict[str, str]) -> Iterator[tuple[SqlSpan, Edit]]:
    """A CAST around a call, of which the plan knows the first word."""
    place = span(call)
    if place is None:
        return
    text = texts[place.origin]
    first = place.first - sum(len(each[0]) for each in _MARKS.finditer(marked(text)[: place.first]))
    words = [token for token in _tokens(text) if token.start >= first]
    depth, last = 0, first
    for number, token in enumerate(words):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        last = token.end + 1
        following = words[number + 1].text.upper() if number + 1 < len(words) else ""
        if token.token_type is TokenType.R_PAREN and depth == 0 and following != "FILTER":
            break
    yield place, (first, first, "CAST(")
    yield place, (last, last, f" AS {to})")


def _tokens(sql: str) -> list[Token]:
    return sqlglot.tokenize(sql, read="spark")
