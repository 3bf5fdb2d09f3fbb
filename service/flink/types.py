"""Translate Flink's types to the type names of job files and Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping

from rowkind.service.flink.script import NotCarriedOver, Reader

_PLAIN: Mapping[str, str] = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "DATE": "DATE",
    "STRING": "STRING",
    "VARCHAR": "STRING",
    "CHAR": "STRING",
    "CHARACTER": "STRING",
    "BYTES": "BINARY",
    "BINARY": "BINARY",
    "VARBINARY": "BINARY",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_NONE: Mapping[str, str] = {
    "MULTISET": "MULTISET is not supported: use a MAP<STRING, INT> with the count of each element",
    "INTERVAL": "a column cannot be an INTERVAL: use a number of seconds or months",
    "RAW": "RAW is a Java class, which is not supported: use BYTES",
    "VARIANT": "VARIANT is not supported: use STRING with JSON text",
    "SYMBOL": "a column cannot be a SYMBOL",
}


def spark_type(reader: Reader) -> str:
    """Take the next type, but not a NOT NULL after it, and return it in Spark's syntax. Raises NotCarriedOver."""
    start = reader.start
    name = reader.take().upper
    if name in _NONE:
        raise NotCarriedOver(start, _NONE[name])
    if name in _DECIMALS:
        numbers = _numbers(reader) or ["10"]
        return f"DECIMAL({','.join([*numbers, '0'][:2])})"
    if name == "TIME":
        digits = (_numbers(reader) or ["0"])[0]
        reader.accept("WITHOUT", "TIME", "ZONE")
        return f"TIME({digits})"
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        # A Flink timestamp without a precision has 6 digits, like Spark's timestamps.
        digits = "".join(f"({number})" for number in _numbers(reader) if number != "6")
        local = name == "TIMESTAMP" and not reader.accept("WITH", "LOCAL", "TIME", "ZONE")
        reader.accept("WITHOUT", "TIME", "ZONE")
        return f"{'TIMESTAMP_NTZ' if local else 'TIMESTAMP'}{digits}"
    if name in _PLAIN:
        reader.accept("PRECISION")
        reader.accept("VARYING")
        _numbers(reader)
        return _PLAIN[name]
    if name == "ARRAY":
        reader.expect("<")
        return f"ARRAY<{_inner(reader)}{_close(reader)}"
    if name == "MAP":
        reader.expect("<")
        key = _inner(reader)
        reader.expect(",")
        if key.removesuffix(" NOT NULL") != "STRING":
            raise NotCarriedOver(start, f"the keys of a MAP must be STRING, not {key}: cast them in a view")
        return f"MAP<STRING, {_inner(reader)}{_close(reader)}"
    if name == "ROW":
        return f"STRUCT<{', '.join(_fields(reader))}>"
    raise NotCarriedOver(start, f"the type {name or 'here'} is not supported")


def nullable(reader: Reader) -> str:
    """Take NOT NULL or NULL if it comes next. Return " NOT NULL" or an empty string."""
    if reader.accept("NOT", "NULL"):
        return " NOT NULL"
    reader.accept("NULL")
    return ""


def _inner(reader: Reader) -> str:
    return spark_type(reader) + nullable(reader)


def _fields(reader: Reader) -> list[str]:
    close = ")" if reader.accept("(") else ">"
    if close == ">":
        reader.expect("<")
    found = []
    while True:
        name = reader.name().value
        found.append(f"{name}: {_inner(reader)}")
        if reader.peek() not in (",", close, ">>"):
            reader.take()  # the field's description
        if not reader.accept(","):
            break
    if close == ")":
        reader.expect(")")
    else:
        _close(reader)
    return found


def _close(reader: Reader) -> str:
    """Take the `>` that ends a type, which may be half of a `>>`."""
    if reader.peek() == ">>":
        reader.split_angles()
    reader.expect(">")
    return ">"


def _numbers(reader: Reader) -> list[str]:
    if reader.peek() != "(":
        return []
    return [word.value for word in reader.parenthesised() if word.kind == "number"]
