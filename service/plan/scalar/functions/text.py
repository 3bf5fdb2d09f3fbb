"""Functions on text. Positions are counted in code points, starting at 1."""

from __future__ import annotations

from collections.abc import Sequence

from rowkind.service.plan.scalar.casts import cast
from rowkind.service.plan.scalar.functions import format_texts
from rowkind.service.plan.scalar.functions.function import ScalarFunction, maybe
from rowkind.service.plan.scalar.typed import Typed
from rowkind.service.plan.scalar.types import BINARY, BOOLEAN, DOUBLE, INT, STRING, failure, family

_SPARK_ORDER = "As in Spark, the characters to trim come first."


def _concatenated(arguments: Sequence[Typed]) -> str:
    parts = [cast(argument.sql, argument.type, STRING) for argument in arguments]
    return f"({' || '.join(str(part) for part in parts)})"


def _joined(arguments: Sequence[Typed]) -> str:
    parts = [str(cast(argument.sql, argument.type, STRING)) for argument in arguments]
    return f"concat_ws({', '.join(parts)})"


def _substring(arguments: Sequence[Typed]) -> str:
    """Return SQL for a substring. DuckDB's own function is used if no position is negative or computed.

    As in Spark, position 0 also means the first character.
    """
    text, start, *length = arguments
    numbers = [str(each.literal) for each in (start, *length)]
    if all(number.isdigit() for number in numbers):
        return f"substring({', '.join([text.sql, str(max(int(numbers[0]), 1)), *numbers[1:]])})"
    return f"spark_substring({text.sql}, {start.sql}, {length[0].sql if length else 2**31 - 1})"


def _overlaid(arguments: Sequence[Typed]) -> str:
    text, other, start, *length = (argument.sql for argument in arguments)
    taken = f"(CASE WHEN {length[0]} < 0 THEN length({other}) ELSE {length[0]} END)" if length else f"length({other})"
    before = f"left({text}, spark_count(CAST({start} AS BIGINT) - 1))"
    return f"({before} || {other} || spark_substring({text}, CAST({start} AS BIGINT) + {taken}, {2**31 - 1}))"


def _grouped(arguments: Sequence[Typed]) -> str:
    value, digits = arguments
    if int(digits.literal or "0") < 0:
        return "CAST(NULL AS VARCHAR)"
    if family(value.type) == "float":
        return f"spark_grouped_double(CAST({value.sql} AS DOUBLE), {digits.literal})"
    return f"spark_grouped_decimal(CAST({value.sql} AS VARCHAR), {digits.literal})"


def _chosen(arguments: Sequence[Typed]) -> str:
    number, *texts = (argument.sql for argument in arguments)
    whens = " ".join(f"WHEN {place} THEN {text}" for place, text in enumerate(texts, 1))
    bad = failure(f"'ELT has no value number ' || {number}", "VARCHAR")
    return f"(CASE WHEN {number} IS NULL THEN NULL ELSE CASE {number} {whens} ELSE {bad} END END)"


_URLS = "Parsed like java.net.URI."
_BINARY_LENGTH = "CAST(octet_length({0}) AS INTEGER)"

FUNCTIONS = (
    ScalarFunction("UPPER UCASE", "text", STRING, "spark_upper({0})"),
    ScalarFunction("LOWER LCASE", "text", STRING, "spark_lower({0})"),
    ScalarFunction("INITCAP", "text", STRING, "spark_capitals({0})", "Only spaces separate words."),
    ScalarFunction("LENGTH CHAR_LENGTH CHARACTER_LENGTH LEN", "text", INT, "CAST(length({0}) AS INTEGER)"),
    ScalarFunction("LENGTH CHAR_LENGTH CHARACTER_LENGTH LEN", "binary", INT, _BINARY_LENGTH),
    ScalarFunction("OCTET_LENGTH", "text", INT, "CAST(strlen({0}) AS INTEGER)"),
    ScalarFunction("OCTET_LENGTH", "binary", INT, _BINARY_LENGTH),
    ScalarFunction("BIT_LENGTH", "text", INT, "CAST(strlen({0}) * 8 AS INTEGER)"),
    ScalarFunction("BIT_LENGTH", "binary", INT, "CAST(octet_length({0}) * 8 AS INTEGER)"),
    ScalarFunction("TRIM BTRIM", "text", STRING, "trim({0}, ' ')", "Only spaces."),
    ScalarFunction("LTRIM", "text", STRING, "ltrim({0}, ' ')", "Only spaces."),
    ScalarFunction("RTRIM", "text", STRING, "rtrim({0}, ' ')", "Only spaces."),
    ScalarFunction("BTRIM", "text, text", STRING, "trim({0}, {1})"),
    ScalarFunction("LTRIM", "text, text", STRING, "ltrim({1}, {0})", _SPARK_ORDER),
    ScalarFunction("RTRIM", "text, text", STRING, "rtrim({1}, {0})", _SPARK_ORDER),
    ScalarFunction(
        "SUBSTRING SUBSTR", "text, int", STRING, _substring, "0 also means the first character, -1 the last."
    ),
    ScalarFunction("SUBSTRING SUBSTR", "text, int, int", STRING, _substring, "Also SUBSTRING(s FROM i FOR n)."),
    ScalarFunction("LEFT", "text, int", STRING, "left({0}, spark_count({1}))"),
    ScalarFunction("RIGHT", "text, int", STRING, "right({0}, spark_count({1}))"),
    ScalarFunction("CONCAT", "binary...", BINARY, lambda given: f"({' || '.join(each.sql for each in given)})"),
    ScalarFunction("CONCAT", "any...", STRING, _concatenated, "Also ||. NULL if any argument is NULL."),
    ScalarFunction("CONCAT_WS", "text, any...", STRING, _joined, "Ignores NULLs; arrays are not supported."),
    ScalarFunction("REPEAT", "text, int", STRING, "repeat({0}, spark_count({1}))"),
    ScalarFunction("SPACE", "int", STRING, "repeat(' ', spark_count({0}))"),
    ScalarFunction("REPLACE", "text, text", STRING, "replace({0}, {1}, '')"),
    ScalarFunction("REPLACE", "text, text, text", STRING, "replace({0}, {1}, {2})"),
    ScalarFunction("TRANSLATE", "text, text, text", STRING, "translate({0}, {1}, {2})"),
    ScalarFunction("OVERLAY", "text, text, int", STRING, _overlaid, "Also OVERLAY(s PLACING t FROM i)."),
    ScalarFunction("OVERLAY", "text, text, int, int", STRING, _overlaid, "Also OVERLAY(s PLACING t FROM i FOR n)."),
    ScalarFunction("REVERSE", "text", STRING, "spark_reverse({0})"),
    ScalarFunction("LPAD", "text, int", STRING, "(spark_pad({1} - length({0}), ' ') || left({0}, spark_count({1})))"),
    ScalarFunction("RPAD", "text, int", STRING, "(left({0}, spark_count({1})) || spark_pad({1} - length({0}), ' '))"),
    ScalarFunction(
        "LPAD", "text, int, text", STRING, "(spark_pad({1} - length({0}), {2}) || left({0}, spark_count({1})))"
    ),
    ScalarFunction(
        "RPAD", "text, int, text", STRING, "(left({0}, spark_count({1})) || spark_pad({1} - length({0}), {2}))"
    ),
    ScalarFunction("INSTR", "text, text", INT, "CAST(instr({0}, {1}) AS INTEGER)"),
    ScalarFunction("LOCATE POSITION", "text, text", INT, "CAST(instr({1}, {0}) AS INTEGER)", "Also POSITION(t IN s)."),
    ScalarFunction(
        "LOCATE POSITION",
        "text, text, int",
        maybe(INT),
        "(CASE WHEN {2} IS NULL THEN 0 ELSE CAST(spark_locate({0}, {1}, {2}) AS INTEGER) END)",
    ),
    ScalarFunction("STARTSWITH", "text, text", BOOLEAN, "starts_with({0}, {1})"),
    ScalarFunction("ENDSWITH", "text, text", BOOLEAN, "ends_with({0}, {1})"),
    ScalarFunction("CONTAINS", "text, text", BOOLEAN, "contains({0}, {1})"),
    ScalarFunction(
        "ASCII",
        "text",
        INT,
        "(CASE WHEN {0} = '' THEN 0 ELSE ascii({0}) END)",
        "The code point of the first character.",
    ),
    ScalarFunction(
        "CHR CHAR", "bigint", STRING, "(CASE WHEN {0} < 0 THEN '' ELSE chr(CAST({0} % 256 AS INTEGER)) END)"
    ),
    ScalarFunction(
        "SPLIT_PART",
        "text, text, int",
        STRING,
        # DuckDB's split_part splits into letters at an empty delimiter, and accepts part number 0.
        "(CASE WHEN {1} = '' OR {2} = 0 THEN spark_part({0}, {1}, {2}) ELSE split_part({0}, {1}, {2}) END)",
        "Negative numbers count from the end.",
    ),
    ScalarFunction("SUBSTRING_INDEX", "text, text, int", STRING, "spark_until({0}, {1}, {2})"),
    ScalarFunction("LEVENSHTEIN", "text, text", INT, "spark_distance({0}, {1})"),
    ScalarFunction(
        "LEVENSHTEIN",
        "text, text, int",
        INT,
        "(CASE WHEN spark_distance({0}, {1}) <= {2} THEN spark_distance({0}, {1}) "
        "WHEN spark_distance({0}, {1}) > {2} THEN -1 END)",
    ),
    ScalarFunction("FORMAT_NUMBER", "number, 'int'", maybe(STRING), _grouped, "Rounds half to even."),
    ScalarFunction("SOUNDEX", "text", STRING, "spark_soundex({0})"),
    ScalarFunction("FIND_IN_SET", "text, text", INT, "spark_place({0}, {1})"),
    ScalarFunction("ELT", "int, text...", maybe(STRING), _chosen, keeps_null=False),
    ScalarFunction("JARO_WINKLER_SIMILARITY", "text, text", DOUBLE, "spark_similar({0}, {1})", close=True),
    ScalarFunction("QUOTE", "text", STRING, "spark_quoted({0})"),
    ScalarFunction("IS_VALID_UTF8", "text", BOOLEAN, "({0} IS NOT NULL OR NULL)", "Text is always valid here."),
    ScalarFunction(
        "VALIDATE_UTF8 TRY_VALIDATE_UTF8 MAKE_VALID_UTF8",
        "text",
        STRING,
        "{0}",
        "Returns the text, which is always valid.",
    ),
    *(
        function
        for name, strict in (("PARSE_URL", "TRUE"), ("TRY_PARSE_URL", "FALSE"))
        for function in (
            ScalarFunction(name, "text, text", maybe(STRING), f"spark_of_url({{0}}, {{1}}, {strict})", _URLS),
            ScalarFunction(
                name, "text, text, text", maybe(STRING), f"spark_of_query({{0}}, {{1}}, {{2}}, {strict})", _URLS
            ),
        )
    ),
    ScalarFunction("TRY_URL_DECODE", "text", maybe(STRING), "TRY(spark_url_decode({0}))"),
    ScalarFunction("FORMAT_STRING PRINTF", "'text'", STRING, format_texts.write),
    ScalarFunction(
        "FORMAT_STRING PRINTF", "'text', any...", STRING, format_texts.write, format_texts.NOTE, keeps_null=False
    ),
    ScalarFunction(
        "COLLATION", "text", STRING, "'SYSTEM.BUILTIN.UTF8_BINARY'", "This is the only collation.", keeps_null=False
    ),
    ScalarFunction("MASK", "text", STRING, "spark_mask({0})"),
    ScalarFunction("LUHN_CHECK", "text", BOOLEAN, "spark_luhn({0})"),
    ScalarFunction("URL_ENCODE", "text", STRING, "spark_url_encode({0})"),
    ScalarFunction("URL_DECODE", "text", STRING, "spark_url_decode({0})", "Bytes that are not UTF-8 become U+FFFD."),
)
