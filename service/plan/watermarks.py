"""Declarations of table watermarks. A watermark is a column, or an expression over the row, minus a delay.

    watermark: {column: placed, delay: 5s}                          in the job file
    FROM orders WATERMARK placed DELAY OF INTERVAL 5 SECONDS        in SQL, with Spark's syntax: `sql.dialect`

A watermark applies to the whole job, regardless of where it is declared. All declarations for a table must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from rowkind.avro.schema import Record
from rowkind.service.job.duration import show
from rowkind.service.job.table import WatermarkSettings
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.source_table import Watermark
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.intervals import amount
from rowkind.service.plan.scalar.scalars import compile_scalar
from rowkind.service.plan.scalar.time_windows import DAY
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.sql.dialect import RowkindSql
from rowkind.service.plan.sql.scope import Relation, Scope
from rowkind.service.plan.sql.watermark_clause import TableWatermark
from rowkind.service.plan.syntax import sql_text

_DELAY = "the delay must be a length of time such as 5s, an INTERVAL, or a CASE of INTERVALs"


def watermark(table: str, said: WatermarkSettings, declared: Record) -> Watermark:
    """Return the watermark that the job file declares for a table with the columns `declared`.

    Raises a Refusal that names the job file's field.
    """
    time = _said(said.column, "column", table, declared)
    of = less = _time(time, declared, "column")
    if isinstance(said.delay, str):
        delay = _said(said.delay, "delay", table, declared)
        less = _time(_earlier(time, delay), declared, "delay")
    delay_us = said.delay * 1000 if isinstance(said.delay, int) else 0
    return Watermark(less, of, delay_us, said.idle, said.late, said.allowed_lateness)


def with_clauses(
    table: str, known: Watermark | None, clauses: Sequence[TableWatermark], declared: Record
) -> Watermark | None:
    """Return a table's watermark from the job file's declaration `known`, if there is one, and all WATERMARK clauses.

    Raises Refusal if two declarations differ.
    """
    where = "in the job file"
    for each in clauses:
        found = _of_clause(each, declared, known)
        if known is not None and _meaning(found) != _meaning(known):
            raise Refusal(
                f"table {table} already has a different watermark, {_shown(known)} {where}, and all queries of a job "
                "share one: write the same watermark, or remove one of the two",
                each.clause,
            )
        if known is None:
            known, where = found, f"in {each.origin}"
    return known


def _of_clause(said: TableWatermark, declared: Record, known: Watermark | None) -> Watermark:
    delay = said.clause.args["delay"]
    months, days, rest = amount(delay)
    if months:
        raise Refusal("the delay must be in days or shorter units, because months differ in length", delay)
    if (delay_us := days * DAY + rest) < 0:
        raise Refusal(_negative(), delay)
    of = _time(_resolved(said.clause.this, said.alias, declared), declared, at=said.clause.this)
    # Settings that SQL cannot express come from the job file, or have their default values.
    idle_ms = WatermarkSettings(column="").idle
    how = Watermark(of, of, delay_us, idle_ms)
    return how if known is None else replace(known, of=of, time=of, delay_us=delay_us)


def _meaning(watermark: Watermark) -> tuple[str, str, int]:
    return watermark.of.sql, watermark.time.sql, watermark.delay_us


def _shown(watermark: Watermark) -> str:
    if watermark.time != watermark.of:
        return watermark.time.text
    return f"{watermark.of.text} with a delay of {show(watermark.delay_us // 1000)}"


def _time(tree: exp.Expr, declared: Record, field: str = "sql", at: exp.Expr | None = None) -> Expression:
    """Compile the expression for a row's time. Raises Refusal if the expression's type is not a timestamp."""
    try:
        time = compile_scalar(tree, {name: (name, declared.type(name)) for name in declared.names})
    except Refusal as refusal:
        raise Refusal(refusal.text, at, field) from None
    if family(time.type) not in ("timestamp", "local"):
        raise Refusal(
            f"a watermark needs a TIMESTAMP, but {time.text} has type {time.type.sql}{_instead(time)}", at, field
        )
    return time


def _instead(time: Expression) -> str:
    match time.type.kind:
        case "long":
            return f": write TIMESTAMP_MILLIS({time.text}), or use TIMESTAMP_SECONDS or TIMESTAMP_MICROS"
        case "string" | "date":
            return f": write CAST({time.text} AS TIMESTAMP)"
    return ""


def _earlier(time: exp.Expr, delay: exp.Expr) -> exp.Expr:
    """Return a time minus a delay. The delay may depend on the row. Raises Refusal if the delay is invalid."""
    delay = delay.unnest()
    if isinstance(delay, exp.Case):
        less = delay.copy()
        for branch in less.args["ifs"]:
            branch.set("true", _earlier(time, branch.args["true"]))
        if less.args.get("default"):
            less.set("default", _earlier(time, less.args["default"]))
        return less
    if not isinstance(delay, exp.Interval | exp.Add | exp.Sub):
        raise Refusal(f"{_DELAY}, not {sql_text(delay)}", field="delay")
    try:
        parts = amount(delay)
    except (Refusal, AttributeError):
        raise Refusal(f"{_DELAY}, not {sql_text(delay)}", field="delay") from None
    if min(parts) < 0:
        raise Refusal(_negative(), field="delay")
    return exp.Sub(this=exp.paren(time.copy()), expression=delay.copy())


def _negative() -> str:
    return "the delay cannot be negative, because rows in order would then be late: write how late rows may arrive"


def _said(text: str, field: str, table: str, declared: Record) -> exp.Expr:
    """Parse the expression in a job file field. Raises Refusal."""
    try:
        tree = sqlglot.parse_one(text, read=RowkindSql)
    except (SqlglotError, ValueError, TypeError, AttributeError, LookupError):
        wanted = "write a column, or an expression over the columns of the table" if field == "column" else _DELAY
        raise Refusal(f"{text!r} cannot be parsed: {wanted}", field=field) from None
    try:
        return _resolved(tree, table, declared)
    except Refusal as refusal:
        raise Refusal(refusal.text, field=field) from None


def _resolved(tree: exp.Expr, table: str, declared: Record) -> exp.Expr:
    """Resolve the column names in an expression over one table. `table` is its name or alias. Raises Refusal."""
    return Scope((Relation(table, {name: name for name in declared.names}),)).resolve(tree)
