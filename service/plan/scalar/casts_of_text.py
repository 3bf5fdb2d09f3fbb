"""Casts from text, as Spark SQL reads numbers, dates and times in ANSI mode.

Spaces and control characters around the value do not matter. Years have four digits or more and may have a sign; a time
needs its date. Time zones are `Z`, an offset, or the name of a region.
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


def cast(sql: str, to: Type, *, strict: bool) -> str | None:
    """DuckDB SQL that reads a value of type `to` out of a text; what is none fails, or is NULL if not `strict`."""
    text = f"trim({sql}, '{_AROUND}')"
    word = "CAST" if strict else "TRY_CAST"
    name = types.duckdb(to)
    reason = f"'''' || {sql} || ''' is no {to.sql}: TRY_CAST makes NULL of such text'"
    bad = types.failure(reason, "TIMESTAMP" if family(to) == "timestamp" else name) if strict else "NULL"

    def where(pattern: str, value: str) -> str:
        """The value, of text for {0}. Most text has nothing around it, and taking that off costs much."""
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
            # A letter behind a number says how wide it is, as in Java; too large a number is infinite.
            large = "(CASE WHEN starts_with({0}, '-') THEN '-inf' ELSE 'inf' END)"
            number = f"COALESCE(TRY_CAST(rtrim({{0}}, 'dDfF') AS {name}), CAST({large} AS {name}))"
            words = "".join(
                f"WHEN lower({text}) IN ({spelled}) THEN CAST('{value}' AS {name}) "
                for spelled, value in (
                    ("'nan'", "nan"),
                    ("'inf', '+inf', 'infinity', '+infinity'", "inf"),
                    ("'-inf', '-infinity'", "-inf"),
                )
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
