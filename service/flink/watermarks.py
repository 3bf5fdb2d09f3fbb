"""WATERMARK FOR a column AS that column less an interval, and when a source is idle, as a table's `watermark`."""

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
"""SET by a script, of all its tables."""

_OWN_IDLE = "scan.watermark.idle-timeout"


def watermark(
    script: Script, table: CreateTable, options: Options, idle: FlinkOption | None, translator: Translator
) -> dict[str, Any] | None:
    """The `watermark` of a table that has one; what a job cannot say of it is noted."""
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
    """The column, or what it is computed of. Raises NotCarriedOver."""
    said = table.watermark
    assert said is not None, "only what is there is of a column"
    column = next((each for each in table.columns if each.name == said.column), None)
    if column is None or column.is_proctime:
        raise NotCarriedOver(said.at, f"the table has no column {said.column} in its rows")
    return str(translator.query(column.computed)) if column.computed else column.name


def _delay(script: Script, table: CreateTable) -> str:
    """How much is taken off the column, as a job file has it. Raises NotCarriedOver."""
    said = table.watermark
    assert said is not None, "only what is there has a delay"
    first, *rest = said.expression
    if first.value == said.column and not rest:
        return "0ms"
    if first.value != said.column or rest[0].upper != "-":
        raise NotCarriedOver(first.start, f"write {said.column} - INTERVAL '5' SECOND")
    try:
        length = micros(sqlglot.parse_one(script.written(rest[1:]), read=RowkindSql))
    except (SqlglotError, Refusal):
        text = f"what is taken off {said.column} is an INTERVAL here, or an expression as the `delay` of the table"
        raise NotCarriedOver(first.start, text) from None
    return duration.show(-(-length // 1000))
