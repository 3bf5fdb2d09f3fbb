"""Flink's functions and syntax from its page of built-in functions: the translation of each, or the refusal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from rowkind.service.flink.job_file import imported
from rowkind.service.flink.script import ScriptError
from tests.trying import folded, inserts

SCRIPT = """CREATE TABLE r (a INT, b BIGINT, d DOUBLE, s STRING, f BOOLEAN, x BYTES, t TIMESTAMP(3), l TIMESTAMP_LTZ(3),
  tags ARRAY<STRING>, m MAP<STRING, STRING>) WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE o WITH ('connector' = 'kafka', 'format' = 'debezium-json') AS
SELECT {} AS v FROM r;"""

SAME = (
    *("a = b", "a <> b", "a IS NOT DISTINCT FROM b", "a BETWEEN 1 AND 2", "s LIKE 'x%'", "s LIKE 'x!%' ESCAPE '!'"),
    *("f IS TRUE", "f IS NOT FALSE", "+ a", "a % b", "POWER(a, 2)", "LOG(2, d)", "CEIL(a)", "FLOOR(a)", "SIGN(d)"),
    *("ROUND(d, 1)", "PI()", "BIN(a)", "HEX(s)", "UNHEX(s)", "s || s", "CHAR_LENGTH(s)", "POSITION('a' IN s)"),
    *("TRIM(BOTH 'x' FROM s)", "BTRIM(s, 'x')", "REPEAT(s, 2)", "OVERLAY(s PLACING 'x' FROM 2 FOR 1)", "INITCAP(s)"),
    *(
        "SUBSTRING(s FROM 2 FOR 3)",
        "CONCAT_WS(',', s, s)",
        "LPAD(s, 3, 'x')",
        "ASCII(s)",
        "CHR(a)",
        "LOCATE('a', s, 2)",
    ),
    *("DECODE(x, 'UTF-8')", "ENCODE(s, 'UTF-8')", "URL_DECODE(s)", "REGEXP(s, 'a')", "REGEXP_COUNT(s, 'a')"),
    *("DATE '2026-01-01'", "t + INTERVAL '1' DAY", "EXTRACT(DAY FROM t)", "DAYOFWEEK(t)", "DATE_FORMAT(t, 'yyyy')"),
    *("TIMESTAMPADD(WEEK, 1, t)", "TIMESTAMPDIFF(MINUTE, t, t)", "FROM_UNIXTIME(a)", "UNIX_TIMESTAMP(s, 'yyyy')"),
    *("CASE a WHEN 1 THEN 2 END", "NULLIF(a, b)", "IF(f, a, b)", "IFNULL(a, b)", "CAST(a AS STRING)"),
    *("CARDINALITY(tags)", "m['k']", "ARRAY_CONTAINS(tags, 'x')", "MD5(s)", "SHA2(s, 256)", "COUNT(DISTINCT a)"),
    *("SUM(a) FILTER (WHERE f)", "AVG(d)", "d / a"),
)

OTHERWISE = {
    "a / b": "a DIV b",
    "a / 2 / b": "a DIV 2 DIV b",
    "a/2": "a DIV 2",
    "(a + 4 / 2) * d / b": "(a + 4 DIV 2) * d / b",
    "SUM(a) / COUNT(*)": "SUM(a) DIV COUNT(*)",
    "AVG(a)": "CAST(AVG(a) AS INT)",
    "AVG(a) / 2": "CAST(AVG(a) AS INT) DIV 2",
    "AVG(a / 2) / 3": "CAST(AVG(a DIV 2) AS BIGINT) DIV 3",
    "CAST(AVG(a) AS DOUBLE)": "CAST(CAST(AVG(a) AS INT) AS DOUBLE)",
    "FLOOR(d) / 2": "CAST(FLOOR(d) AS DOUBLE) / 2",
    "AVG(a) FILTER (WHERE f)": "CAST(AVG(a) FILTER (WHERE f) AS INT)",
    "AVG(a) OVER (PARTITION BY b ORDER BY t)": "CAST(AVG(a) OVER (PARTITION BY b ORDER BY t) AS INT)",
    "AVG(a) OVER (PARTITION BY b) / 2": "CAST(AVG(a) OVER (PARTITION BY b) AS INT) DIV 2",
    "FIRST_VALUE(a)": "FIRST_VALUE(a) IGNORE NULLS",
    "LAST_VALUE(a / 2)": "LAST_VALUE(a DIV 2) IGNORE NULLS",
    "FIRST_VALUE(a) FILTER (WHERE f)": "FIRST_VALUE(a) FILTER (WHERE f) IGNORE NULLS",
    "LAST_VALUE(a) OVER (ORDER BY t)": "LAST_VALUE(a) IGNORE NULLS OVER (ORDER BY t)",
    "LAST_VALUE(a IGNORE NULLS) OVER (ORDER BY t)": "LAST_VALUE(a) IGNORE NULLS OVER (ORDER BY t)",
    "LAST_VALUE(a) RESPECT NULLS OVER (ORDER BY t)": "LAST_VALUE(a) RESPECT NULLS OVER (ORDER BY t)",
    "LISTAGG(s)": "LISTAGG(s, ',')",
    "LISTAGG(DISTINCT s)": "LISTAGG(DISTINCT s, ',')",
    "SPLIT(s, '|')": r"SPLIT(s, '\\|')",
    "STR_TO_MAP(s)": "STR_TO_MAP(s, ',', '=')",
    "STR_TO_MAP(s, ';')": "STR_TO_MAP(s, ';', '=')",
    "ARRAY_SORT(tags)": "SORT_ARRAY(tags)",
    "f IS NOT UNKNOWN": "f IS NOT NULL",
    "'it''s \\d'": r"'it\'s \\d'",
    "LTRIM(s, 'x')": "LTRIM('x', s)",
    "REGEXP_EXTRACT(s, 'a')": "IF(REGEXP_LIKE(s, 'a'), REGEXP_EXTRACT(s, 'a', 0), NULL)",
    "REGEXP_INSTR(s, 'a')": "INSTR(s, REGEXP_SUBSTR(s, 'a'))",
    "FROM_BASE64(TO_BASE64(s))": "DECODE(UNBASE64(BASE64(s)), 'UTF-8')",
    "SHA256(s)": "SHA2(s, 256)",
    "TIMESTAMP '2026-01-01 00:00:00'": "TIMESTAMP_NTZ '2026-01-01 00:00:00'",
    "EXTRACT(SECOND FROM t)": "SECOND(t)",
    "WEEK(t)": "WEEKOFYEAR(t)",
    "FLOOR(t TO MINUTE)": "CAST(DATE_TRUNC('MINUTE', t) AS TIMESTAMP_NTZ)",
    "FLOOR(l TO HOUR)": "DATE_TRUNC('HOUR', l)",
    "TO_DATE(s)": "TRY_TO_DATE(s)",
    "TO_TIMESTAMP(s)": "TRY_CAST(s AS TIMESTAMP_NTZ)",
    "TO_TIMESTAMP(s, 'yyyy-MM-dd')": "CAST(TRY_TO_TIMESTAMP(s, 'yyyy-MM-dd') AS TIMESTAMP_NTZ)",
    "TO_TIMESTAMP_LTZ(b, 3)": "TIMESTAMP_MILLIS(b)",
    "TO_TIMESTAMP_LTZ(b, 0)": "TIMESTAMP_SECONDS(b)",
    "UNIX_TIMESTAMP(s)": "UNIX_TIMESTAMP(s, 'yyyy-MM-dd HH:mm:ss')",
    "GREATEST(a, b, 3)": "IF(a IS NULL OR b IS NULL OR 3 IS NULL, NULL, GREATEST(a, b, 3))",
    "CAST(s AS TIMESTAMP_LTZ(3))": "CAST(s AS TIMESTAMP(3))",
    "TRY_CAST(s AS VARCHAR(3))": "TRY_CAST(s AS STRING)",
    "tags[1]": "TRY_ELEMENT_AT(tags, 1)",
    "r.tags[1]": "TRY_ELEMENT_AT(r.tags, 1)",
    "tags[a + 1]": "TRY_ELEMENT_AT(tags, a + 1)",
    "SPLIT(s, ',')[2]": "TRY_ELEMENT_AT(SPLIT(s, ','), 2)",
    "ARRAY['x'][1]": "TRY_ELEMENT_AT(ARRAY('x'), 1)",
    "m[s]": "TRY_ELEMENT_AT(m, s)",
    "MAP['k', tags]['k'][1]": "TRY_ELEMENT_AT(MAP('k', tags)['k'], 1)",
    "JSON_VALUE(s, '$.a')": "GET_JSON_OBJECT(s, '$.a')",
    "JSON_VALUE(s, 'lax $.a' RETURNING INT NULL ON EMPTY)": "TRY_CAST(GET_JSON_OBJECT(s, '$.a') AS INT)",
    "JSON_EXISTS(s, '$.a')": "(GET_JSON_OBJECT(s, '$.a') IS NOT NULL)",
}

REFUSED = {
    "NOW()": "when the row is retracted",
    "CURRENT_TIMESTAMP": "when the row is retracted",
    "LOCALTIME": "when the row is retracted",
    "RAND()": "when the row is retracted",
    "UUID()": "when the row is retracted",
    "s SIMILAR TO 'x'": "use RLIKE",
    "s IS JSON": "GET_JSON_OBJECT",
    "a BETWEEN SYMMETRIC 2 AND 1": "write BETWEEN LEAST",
    "(t, t) OVERLAPS (t, t)": "a.start < b.end",
    "CEIL(t TO DAY)": "write DATE_TRUNC",
    "CAST(t AS TIME)": "write CAST(… AS STRING)",
    "TIME '10:00:00'": "write CAST(… AS STRING)",
    "TYPEOF(a)": "write the type's name as a literal",
    "JSON_VALUE(s, '$.a' DEFAULT 'x' ON EMPTY)": "use COALESCE",
    "JSON_OBJECT('a' VALUE 1)": "format: json",
    "COLLECT(a)": "add the value to GROUP BY",
    "CURRENT_WATERMARK(t)": "compare with a time column",
    "JSON_UNQUOTE(s)": "the resulting text would differ in details",
    "ARRAY_SLICE(tags, 1, 2)": "write SLICE",
    "TRUNCATE(d, 1)": "write CAST or ROUND",
    "SPLIT(s, s)": "the delimiter of SPLIT must be a literal",
    "s || (tags)[1]": "TRY_ELEMENT_AT(array, position)",
    "FROBNICATE(a)": "the function FROBNICATE is not supported",
}


@pytest.mark.parametrize("expression", SAME)
def test_what_is_spelled_the_same_stays(expression: str) -> None:
    """An expression with the same syntax in both dialects is imported unchanged."""
    assert _written(expression) == expression


@pytest.mark.parametrize("expression", OTHERWISE)
def test_what_spark_spells_otherwise_is_written_so(expression: str) -> None:
    """An expression is imported in Spark's syntax for Flink's meaning."""
    assert _written(expression) == OTHERWISE[expression]


@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_refused_says_why_at_its_place(expression: str) -> None:
    """A refused expression is reported with its place in the script and an alternative."""
    with pytest.raises(ScriptError) as refused:
        imported("f.sql", SCRIPT.format(expression))
    assert REFUSED[expression] in str(refused.value)
    assert re.search(r"f\.sql:[34]:\d+: INSERT INTO o is left out", str(refused.value))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("SPLIT_INDEX(s, ',', 0)", "a"),
        ("SPLIT_INDEX(s, ',', 1)", ""),
        ("SPLIT_INDEX(s, ',', 2)", "b"),
        ("SPLIT_INDEX(s, ',', 3)", None),
        ("REGEXP_EXTRACT(s, '(.),', 1)", "a"),
        ("REGEXP_EXTRACT(s, 'x')", None),
        ("GREATEST(a, b)", None),
        ("a / 2", -3),
        ("a / 2 * 1.0", "-3.0"),
        ("a % 2", -1),
        ("AVG(a)", -7),
        ("FLOOR(t TO HOUR)", "2026-01-02T03:00:00"),
        ("TO_TIMESTAMP(s)", None),
        ("TO_TIMESTAMP('2026-01-02 03:04:05')", "2026-01-02T03:04:05"),
        ("TO_TIMESTAMP_LTZ(1000, 3)", "1970-01-01T00:00:01Z"),
        ("JSON_VALUE('{\"a\": 5}', '$.a' RETURNING INT)", 5),
        ("IS_DIGIT(s)", False),
        ("IS_DECIMAL('-1.5')", True),
        ("LTRIM(s, 'a')", ",,b"),
        ("FROM_BASE64(TO_BASE64(s))", "a,,b"),
        ("tags[2]", "y"),
        ("tags[9]", None),
        ("tags[a + 8]", "x"),
        ("UNIX_TIMESTAMP('1970-01-01 00:01:00')", 60),
        ("'it''s \\'", "it's \\"),
        ("FIRST_VALUE(b)", None),
        ("SPLIT(s, ',')[2]", ""),
        ("STR_TO_MAP('k=1,m=2')['m']", "2"),
    ],
)
def test_the_values_are_flinks(tmp_path: Path, expression: str, expected: Any) -> None:
    """The imported query returns the value that Flink's page documents."""
    row = {"a": -7, "b": None, "s": "a,,b", "t": "2026-01-02T03:04:05", "tags": ["x", "y"]}
    tables = {
        "r": {
            "mode": "append",
            "columns": {"a": "INT", "b": "BIGINT", "s": "STRING", "t": "TIMESTAMP_NTZ(3)", "tags": "ARRAY<STRING>"},
        }
    }
    found = folded(tmp_path, f"SELECT {_written(expression)} AS v FROM r", tables, inserts("r", [row]))
    assert found == [{"v": expected}], json.dumps(found)


@pytest.mark.parametrize(
    ("key", "written"),
    [
        ("a / 2", "a DIV 2"),
        ("(a / 2) / 3", "(a DIV 2) DIV 3"),
        ("FLOOR(t TO HOUR)", "CAST(DATE_TRUNC('HOUR', t) AS TIMESTAMP_NTZ)"),
        ("FLOOR(d)", "CAST(FLOOR(d) AS DOUBLE)"),
    ],
)
def test_a_key_of_groups_is_written_as_in_the_select_list(key: str, written: str) -> None:
    """An expression in GROUP BY and HAVING is translated as in the SELECT list."""
    query = f"SELECT {key} AS k, COUNT(*) AS n FROM r GROUP BY {key} HAVING {key} IS NOT NULL"
    script = SCRIPT.replace("SELECT {} AS v FROM r", query)
    job = YAML(typ="safe").load(imported("f.sql", script).text)
    assert job["sinks"]["o"]["sql"] == query.replace(key, written)


def _written(expression: str) -> str:
    """Return the imported form of the expression."""
    job = YAML(typ="safe").load(imported("f.sql", SCRIPT.format(expression)).text)
    found = re.fullmatch(r"SELECT (.*) AS v FROM r", job["sinks"]["o"]["sql"])
    assert found is not None
    return found[1]
