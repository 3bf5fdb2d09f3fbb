"""The watermark of a table, as its declaration says it: a column or an expression of the row, less a delay."""

from __future__ import annotations

from collections.abc import Callable

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from rowkind.avro.schema import Record
from rowkind.service.job.table import WatermarkSettings
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.scalars import compile_scalar, resolved
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.sql.dialect import RowkindSql
from rowkind.service.plan.sql.scope import near
from rowkind.service.source_table import SourceTable, Watermark


def watermark(said: WatermarkSettings, declared: Record) -> Watermark:
    """The watermark of a table with these columns. Raises Refusal."""
    of = tree = _expression(said.column, declared)
    delay_us = said.delay * 1000 if isinstance(said.delay, int) else 0
    if isinstance(said.delay, str):
        tree = _earlier(tree, _expression(said.delay, declared))
    columns = {name: (name, declared.type(name)) for name in declared.names}
    time = compile_scalar(tree, columns)
    if family(time.type) not in ("timestamp", "local"):
        raise Refusal(f"a watermark needs a TIMESTAMP, and {time.text} is {time.type.sql}")
    return Watermark(time, compile_scalar(of, columns), delay_us, said.idle, said.late)


def time_of(source: SourceTable, name: Callable[[str], str]) -> exp.Expr | None:
    """The time that the watermark of a table is of, over its columns as they are called; None without a watermark."""
    if source.watermark is None:
        return None
    tree = _expression(source.watermark.of.text, source.declared)
    return tree.transform(lambda node: resolved(name(node.name)) if isinstance(node, exp.Column) else node)


def _earlier(time: exp.Expr, delay: exp.Expr) -> exp.Expr:
    """A time less a delay, which may depend on the row."""
    delay = delay.unnest()
    if isinstance(delay, exp.Case):
        less = delay.copy()
        for branch in less.args["ifs"]:
            branch.set("true", _earlier(time, branch.args["true"]))
        if less.args.get("default"):
            less.set("default", _earlier(time, less.args["default"]))
        return less
    return exp.Sub(this=exp.paren(time.copy()), expression=delay.copy())


def _expression(text: str, declared: Record) -> exp.Expr:
    """The expression in a text, over columns of the table. Raises Refusal."""
    try:
        tree = sqlglot.parse_one(text, read=RowkindSql)
    except (SqlglotError, ValueError, TypeError, AttributeError, LookupError):
        raise Refusal(f"{text!r} is no expression over the columns of the table") from None
    known = {name.casefold(): name for name in declared.names}

    def column(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if node.name.casefold() not in known:
            raise Refusal(f"there is no column {node.name!r}{near(node.name, declared.names)}")
        return resolved(known[node.name.casefold()])

    return tree.transform(column)
