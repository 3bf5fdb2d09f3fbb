"""Messages about a writer's type that differs from the column's declared type. They suggest a declaration."""

from __future__ import annotations

from rowkind.avro.ticks import UNITS, ticks
from rowkind.avro.type import Type

MOST_DIGITS = 38
"""The maximum number of digits of a decimal in SQL. Connect writes 64 if it does not know the precision, so a higher
precision says nothing about the values."""

_DECLARE = {
    "big-decimal": "DECIMAL(38,s), where s is the largest number of decimal places of the values",
    "io.debezium.data.VariableScaleDecimal": (
        "DECIMAL(38,s), where s is the largest number of decimal places of the values"
    ),
    "io.debezium.time.NanoTime": "TIME, or BIGINT for the number of nanoseconds",
    "io.debezium.time.ZonedTime": "TIME, which is converted to UTC, or STRING",
    "io.debezium.time.IsoTime": "TIME or STRING",
    "io.debezium.time.ZonedTimestamp": "TIMESTAMP or STRING",
    "io.debezium.time.IsoTimestamp": "TIMESTAMP_NTZ or STRING",
    "io.debezium.time.IsoDate": "DATE or STRING",
    "io.debezium.data.Uuid": "UUID or STRING",
}
"""The types with which a column can be declared, by the name that the writer's schema gives to the column's values."""

_FUNCTIONS = {
    "timestamp": "TIMESTAMP_MILLIS({0}), TIMESTAMP_MICROS({0}) or TIMESTAMP_SECONDS({0})",
    "date": "DATE_ADD(DATE '1970-01-01', {0})",
}


def refusal(path: str, source: Type, target: Type) -> str:
    """Explain why no value of a writer's type can be read as the declared type of a column."""
    return (
        f"column {path!r} is declared {spelled_out(target)}, but the writer's schema has {described(source)}: "
        f"{remedy(path, source, target)}"
    )


def misfit(source: Type, target: Type) -> str:
    """Describe the writer's and the declared type of a value that does not fit, and suggest a suitable type."""
    return (
        f"the writer's schema has {described(source)}, but the column is declared {spelled_out(target)}"
        f"{_wider(source, target)}"
    )


def described(type_: Type) -> str:
    """Return a writer's type, in SQL and in the writer's own terms."""
    kind = f"{type_.kind} {type_.name}" if type_.name else type_.kind
    return f"{spelled_out(type_)} ({type_.says or type_.logical or kind})"


def spelled_out(type_: Type) -> str:
    """Return the SQL type, with the precision of its seconds if this is not the usual precision."""
    sql, unit = type_.sql, (type_.logical or "").rpartition("-")[2]
    if sql.startswith("TIMESTAMP") and unit != "micros":
        return f"{sql}({3 if unit == 'millis' else 9})"
    return sql


def remedy(path: str, source: Type, target: Type) -> str:
    """Suggest a declaration in place of `target`."""
    wanted = ticks(target)
    if wanted is not None and source.kind in ("int", "long") and source.logical is None and not _says(source):
        unit = "days" if wanted.of == "date" else "millis"
        function = _FUNCTIONS.get(wanted.of, "").format(path)
        compute = f" and compute the {wanted.of} in SQL as {function}" if function else ""
        return (
            f"the unit of the number is unknown. Set it in the table's `units`, for example "
            f"`units: {{{path}: {unit}}}`, or declare {source.sql}{compute}"
        )
    return f"declare {declare(source)}"


def _says(source: Type) -> bool:
    return bool(source.says) and source.says not in UNITS


def declare(source: Type) -> str:
    """Return the types with which a column of the writer's values may be declared."""
    if (said := _DECLARE.get(source.says) or _DECLARE.get(source.name)) is not None:
        return said
    if source.logical == "decimal" and source.precision > MOST_DIGITS:
        return f"DECIMAL({MOST_DIGITS},{min(source.scale, MOST_DIGITS)})"
    if source.logical == "duration":
        return "BINARY, which keeps the 12 bytes unchanged"
    if source.logical == "uuid":
        return "UUID or STRING"
    if source.logical is not None and source.logical.endswith("-nanos"):
        return f"{source.sql}, which has microseconds, or {spelled_out(source)}"
    return spelled_out(source)


def _wider(source: Type, target: Type) -> str:
    """Suggest a type that accepts all of the writer's values."""
    counts = ticks(source)
    if source.kind == "string":
        return ": declare STRING to keep the text unchanged"
    if source.logical == "decimal" or target.logical == "decimal":
        return f": declare a DECIMAL with more digits, up to {MOST_DIGITS}"
    if counts is not None and counts.of == "time":
        return ": declare BIGINT to keep the number unchanged, even if it is negative or at least 24 hours"
    if counts is not None and counts.of == "timestamp" and spelled_out(target).endswith("(9)"):
        return f": declare {target.sql}, which has a wider range"
    if counts is not None:
        return ": declare BIGINT to keep the number unchanged"
    return ""
