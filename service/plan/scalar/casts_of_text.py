"""Casts from text to numbers, dates and times, as in Spark SQL's ANSI mode.

Spaces and control characters around the value are ignored. Years have four or more digits and may have a sign. A time
must be preceded by a date. A time zone is `Z`, an offset, or a region name.
"""

from __future__ import annotations

from rowkind.avro.schema import Type
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.types import family

TRUE = ("t", "true", "y", "yes", "1")
FALSE = ("f", "false", "n", "no", "0")
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_AROUND = "".join(map(chr, range(1, 33))) + "\x7f"
_DAY = r"\d{4}-\d{1,2}-\d{1,2}"
_MOMENT = r"\d{4}-\d\d-\d\d[ T]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?"

_WORDS = {"nan": "'nan'", "inf": "'inf', '+inf', 'infinity', '+infinity'", "-inf": "'-inf', '-infinity'"}
"""The words that are read as infinity or NaN, keyed by DuckDB's word for the value."""


def cast(sql: str, to: Type, *, strict: bool) -> str | None:
    """Return SQL that converts text to type `to`, or None if the conversion is not supported.

    For text that is not a value of this type, the SQL fails or, if `strict` is False, returns NULL.
    """
    text = f"trim({sql}, '{_AROUND}')"
    word = "CAST" if strict else "TRY_CAST"
    name = types.duckdb(to)
    reason = f"'''' || {sql} || ''' is not a value of type {to.sql}: TRY_CAST returns NULL for such text'"
    bad = types.failure(reason, "TIMESTAMP" if family(to) == "timestamp" else name) if strict else "NULL"

    def where(pattern: str, value: str) -> str:
        """Return WHEN branches for text ({0}) that matches a pattern. Untrimmed text is tested first: it is cheap."""
        return "".join(
            f"WHEN regexp_full_match({each}, '{pattern}') THEN {value.format(each)} " for each in (sql, text)
        )

    match family(to):
        case "binary":
            return f"encode({sql})"
        case "boolean":
            yes, no = (", ".join(f"'{each}'" for each in words) for words in (TRUE, FALSE))
            low = f"lower({text})"
            return _case(sql, f"WHEN {low} IN ({yes}) THEN TRUE WHEN {low} IN ({no}) THEN FALSE ", bad)
        case "integer":
            return _case(sql, where(r"[+-]?\d+", f"{word}({{0}} AS {name})"), bad)
        case "decimal":
            return _case(sql, where(NUMBER, f"{word}({{0}} AS {name})"), bad)
        case "float":
            # As in Java, a number may be followed by d or f, and a number that is too large becomes infinite.
            large = "(CASE WHEN starts_with({0}, '-') THEN '-inf' ELSE 'inf' END)"
            number = f"COALESCE(TRY_CAST(rtrim({{0}}, 'dDfF') AS {name}), CAST({large} AS {name}))"
            words = "".join(
                f"WHEN lower({text}) IN ({spelled}) THEN CAST('{value}' AS {name}) "
                for value, spelled in _WORDS.items()
            )
            return _case(sql, where(NUMBER + "[dDfF]?", number) + words, bad)
        case "date":
            days = where(rf"{_DAY}([ T](.|\n)*)?", f"{word}(regexp_extract({{0}}, '^[^ T]*') AS DATE)")
            months = where(r"\d{4}-\d{1,2}", f"{word}({{0}} || '-1' AS DATE)")
            years = where(r"\d{4}", f"{word}({{0}} || '-1-1' AS DATE)")
            return _case(sql, days + months + years, f"COALESCE(DATE '1970-01-01' + spark_day({text}), {bad})")
        case "timestamp" | "local":
            other = f"make_timestamp(spark_moment({text}, {'TRUE' if family(to) == 'timestamp' else 'FALSE'}))"
            plain = where(_MOMENT, f"{word}({{0}} AS TIMESTAMP)")
            found = _case(sql, plain, f"COALESCE({other}, {bad})")
            return f"CAST({found} AS {name})"
    return None


def _case(sql: str, whens: str, otherwise: str) -> str:
    return f"(CASE WHEN {sql} IS NULL THEN NULL {whens}ELSE {otherwise} END)"
