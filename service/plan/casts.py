"""Casts between SQL types: those that mean the same in Spark SQL and DuckDB, in DuckDB's words.

Text is turned into another type only where it is written out in the query, so that it can be checked beforehand.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

from avro.schema import Type
from service.plan import types
from service.plan.types import family


def cast(sql: str, source: Type, to: Type) -> str | None:
    """DuckDB SQL that casts a value as Spark SQL does, None where that is not known."""
    if source.required == to.required:
        return sql
    name = types.duckdb(to)
    match family(source), family(to):
        case ("null", _):
            return f"CAST(NULL AS {name})"
        case (a, b) if a == b and a not in ("decimal", "integer", "float"):
            # Another name for the same values: an enum is text, a time in milliseconds a time.
            return sql
        case (("integer" | "decimal" | "float"), "float") | ("integer", "integer" | "decimal"):
            return f"CAST({sql} AS {name})"
        case ("decimal", "decimal"):
            # Both round half away from zero.
            return f"CAST({sql} AS {name})"
        case (("decimal" | "float"), "integer"):
            # Spark cuts off, DuckDB rounds.
            return f"CAST(trunc({sql}) AS {name})"
        case (("integer" | "decimal" | "boolean" | "date"), "string"):
            return f"CAST({sql} AS VARCHAR)"
        case ("timestamp", "string"):
            return f"CAST(CAST({sql} AS TIMESTAMP) AS VARCHAR)"
        case ("local", "string"):
            return f"CAST({sql} AS VARCHAR)"
        case ("date", "timestamp" | "local") | ("timestamp" | "local", "date"):
            return f"CAST({sql} AS {name})"
    return None


def constant(text: str, to: Type) -> str | None:
    """DuckDB SQL for a text written out in the query as a value of another type, None where it is none."""
    text = text.strip()
    match family(to):
        case "string":
            return "'" + text.replace("'", "''") + "'"
        case "boolean" if text.lower() in ("true", "false"):
            return text.upper()
        case "integer" | "decimal" if re.fullmatch(
            r"[+-]?\d+" if family(to) == "integer" else r"[+-]?\d+(\.\d+)?", text
        ):
            return f"CAST({text} AS {types.duckdb(to)})" if _fits(text, to) else None
        case "date" if (day := _date(text)) is not None:
            return f"DATE '{day.isoformat()}'"
        case "timestamp" | "local" if (moment := _moment(text)) is not None:
            if family(to) == "local":
                return f"TIMESTAMP '{moment.replace(tzinfo=None).isoformat(' ')}'"
            instant = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
            return f"TIMESTAMPTZ '{instant.isoformat(' ')}'"
    return None


def _fits(text: str, to: Type) -> bool:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    if to.logical == "decimal":
        return bool(abs(number) < 10 ** (to.precision - to.scale))
    bits = 31 if to.sql == "INT" else 63
    return bool(-(2**bits) <= number < 2**bits)


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else None
    except ValueError:
        return None


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
