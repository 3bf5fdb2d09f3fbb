"""Translate WATERMARK FOR column AS column - INTERVAL …, and the idle timeout, to a table's `watermark` setting."""

from __future__ import annotations

from typing import Any

import sqlglot
from sqlglot.errors import SqlglotError

from rowkind.service.flink.connectors import length_of_time
from rowkind.service.flink.queries import Translator
from rowkind.service.flink.script import NotCarriedOver, Script
from rowkind.service.flink.tables import CreateTable, FlinkOption, Options
from rowkind.service.job import duration
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.time_windows import micros
from rowkind.service.plan.sql.dialect import RowkindSql

IDLE = "table.exec.source.idle-timeout"
"""The SET option with the idle timeout for all tables of a script."""

_OWN_IDLE = "scan.watermark.idle-timeout"


def watermark(
    script: Script, table: CreateTable, options: Options, idle: FlinkOption | None, translator: Translator
) -> dict[str, Any] | None:
    """Return a table's `watermark` setting, or None if it has none. Adds a note for an unsupported watermark."""
    said = table.watermark
    if said is None:
        return None
    try:
        made: dict[str, Any] = {"column": _time(table, translator)}
        delay = _delay(script, table)
        if delay != "0ms":
            made["delay"] = delay
        idle = options.get(_OWN_IDLE, idle)
        if idle is not None and (length := length_of_time(idle, IDLE)) is not None:
            made["idle"] = length
    except NotCarriedOver as reason:
        script.note(reason.at, f"WATERMARK FOR {said.column} is not carried over: {reason.text}")
        return None
    return made


def _time(table: CreateTable, translator: Translator) -> str:
    """Return the watermark's column, or its expression if it is a computed column. Raises NotCarriedOver."""
    said = table.watermark
    assert said is not None, "the caller has checked that there is a watermark"
    column = next((each for each in table.columns if each.name == said.column), None)
    if column is None or column.is_proctime:
        raise NotCarriedOver(said.at, f"the rows of the table have no column {said.column}")
    return str(translator.query(column.computed)) if column.computed else column.name


def _delay(script: Script, table: CreateTable) -> str:
    """Return the interval that is subtracted from the column, in the job file's syntax. Raises NotCarriedOver."""
    said = table.watermark
    assert said is not None, "the caller has checked that there is a watermark"
    first, *rest = said.expression
    if first.value == said.column and not rest:
        return "0ms"
    if first.value != said.column or rest[0].upper != "-":
        raise NotCarriedOver(first.start, f"write {said.column} - INTERVAL '5' SECOND")
    try:
        length = micros(sqlglot.parse_one(script.written(rest[1:]), read=RowkindSql))
    except (SqlglotError, Refusal):
        text = f"only an INTERVAL can be subtracted from {said.column}: set `delay` of the watermark to the expression"
        raise NotCarriedOver(first.start, text) from None
    return duration.show(-(-length // 1000))
