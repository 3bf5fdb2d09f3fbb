"""Calls of every function in the tables, over columns with values at the edges."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from rowkind.avro.schema import Record
from rowkind.service.plan.scalar.functions import FAMILIES, ScalarFunction

_INTS = [0, 1, -1, 2, 5, 7, 31, 33, 64, 100, -250, 2**31 - 1, -(2**31)]
_TEXTS = [
    "", " ", "a", "abc", " Abc dEf ", "a,b,,c", "é😀x", "ß", "Straße İ", "12", "-1.50", " 7 ", "1e3", "NaN", "x\ty\n",
    "2024-02-29", "2024-2-3", "2024-02-29 12:34:56.5", "2023-02-29", "t", "FALSE", "%a_b\\", '{"a": {"b": [1, "x"]}}',
    "[1, 2]", "YWJj", "0aF", "a%20b+c", "79927398713", "Robert", "1", "aaa",
]  # fmt: skip
_DOUBLES = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 0.1, 1.005, 2.675, 123456.789, 1e7, 1.5e-5, 1e20, -1e300,
            math.nan, math.inf, -math.inf]  # fmt: skip
_DAYS = [date(2024, 2, 29), date(2024, 1, 31), date(2023, 12, 31), date(1970, 1, 1), date(1969, 12, 31),
         date(1900, 3, 1), date(2024, 12, 30), date(2021, 1, 3)]  # fmt: skip
_INSTANTS = [
    datetime(2024, 2, 29, 12, 34, 56, 789012, tzinfo=UTC),
    datetime(2024, 1, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=UTC),
    datetime(1960, 7, 4, 1, 2, 3, 1, tzinfo=UTC),
    datetime(2024, 6, 30, 0, 0, 0, 5000, tzinfo=UTC),
    datetime(2021, 1, 3, 15, 0, tzinfo=UTC),
    datetime(2023, 3, 31, 6, 7, 8, tzinfo=UTC),
]
_STRUCTS = [{"a": 1, "b": "x", "c": [1, None]}, {"a": None, "b": "", "c": None}, {"a": -5, "b": "\"q\\\n\x01é/", "c": []}]
_JSON = [
    "", " ", "{}", "[]", "null", "1", '"x"', "{", '{"a": 1', '{"a": 1, "b": "x", "c": [1, 2]}', '{"a": "1", "b": 2}',
    '{"a": 1.0, "b": {"x" : [1,2 ]}, "c": [1, "x", null]}', '{"a": null, "b": null}', '{"A": 3, "a": 4, "a": 5}',
    '[{"a": 1}, {"a": 2}]', "{'a': 7, 'b': 'it'}", '{"a": 2147483648, "b": 1e400}', '{"b": "\\u00e9\\ud83d\\ude00\\n"}',
    '{"a": true, "b": false, "c": {}}', '{"a": 1} trailing', '{"a": NaN, "b": NaN}', '{"a": 012}', '[1, 2, null, "x"]',
    '{"a": -0, "b": -0.0, "c": [1.5]}', '{"x": {"y": {"a": 1}}, "a": 9}', '{"a": "12.345", "b": "\t"}', '{a: 1}',
    '{"a": 1e20, "b": {"x": [0.10, 1e-7, 123456789012345678901234567890]}, "c": [12345678.5]}', '{"a": 0.10, "c": [5e-324]}',
    "['x', 1] z",
    '[1, NaN]',
    '[1',
    '{\'c\': [\'a\\"b\', {\'x\': 1.50, \'y\': \'it\\\'s\'}], \'b\': {\'x\': [ ]}}',
    '{"a": "tab\there"} ',
    '{"b": {"x": null}, "b": {"x": 2}}',
    '{"a": 1,}',
    '[1,]',
    '{"c": [1e5, 1.0, -0, 100000000000000000000, 0.10]} x',
]  # fmt: skip
_URLS = [
    "http://spark.apache.org/path?query=1", "https://u:p@h.example:8080/a/b?k=v&z=1&k=2#ref", "http://h", "", "/a?b=1",
    "mailto:a@b.c", "http://[::1]/x", "http://h/a b", "http://h_x/y", "h.example/x?q", "http://1.2.3.4:80", "http:///p",
    "http://h/%zz", "http://h/é?k=é", "?k=1", "http://u@h?k=#", "ftp://a.b/c;d?x=%20y", "#f", "http://", "a:b:c",
]  # fmt: skip
_TIMES = [instant.replace(tzinfo=None) for instant in _INSTANTS]
_NUMBERS_AS_TIMES = ["s", "m", "j", "d", "CAST(d AS DOUBLE)", "day", "nt", "b", "z"]
_COLUMNS: Mapping[str, tuple[str, list[Any]]] = {
    "i": ("INT", _INTS),
    "j": ("INT", [0, 1, 2, 3, -1, -2, 10, 16]),
    "k": ("INT", [0, 1, 2, 3, 5, -1]),
    "l": ("BIGINT", [*_INTS, 2**63 - 1, -(2**63), 10**12, -5]),
    "m": ("BIGINT", [0, 1, -1, 65, 233, 3, 10**6]),
    "d": ("DECIMAL(10,2)", [Decimal(n).scaleb(-2) for n in (0, 5, -5, 149, 150, -250, 12345, 9999999999)]),
    "e": ("DECIMAL(8,1)", [Decimal(n).scaleb(-1) for n in (0, 5, -5, 15, 25, 1234567)]),
    "w": ("DECIMAL(38,18)", [Decimal(n).scaleb(-18) for n in (0, 1, -1, 10**18, 3 * 10**18, 15 * 10**17, 10**37)]),
    "p": ("DECIMAL(2,2)", [Decimal(n).scaleb(-2) for n in (0, 5, -99, 50)]),
    "f": ("FLOAT", [0.0, -0.0, 1.5, -2.5, 0.1, 2.675, 1e10, math.nan, math.inf]),
    "x": ("DOUBLE", _DOUBLES),
    "y": ("DOUBLE", _DOUBLES),
    "s": ("STRING", _TEXTS),
    "t": ("STRING", ["", "a", "b", ",", " ", "ab", "é", "xyz", "Abc"]),
    "u": ("STRING", ["", "x", "ab", "😀", ","]),
    "zone": ("STRING", ["UTC", "Europe/Berlin", "America/New_York", "+02:00", "-05:30"]),
    "z": ("BINARY", [b"", b"a", b"\x00\xff", "é".encode(), b"abc"]),
    "b": ("BOOLEAN", [True, False]),
    "c": ("BOOLEAN", [True, False]),
    "day": ("DATE", _DAYS),
    "eve": ("DATE", _DAYS),
    "ts": ("TIMESTAMP", _INSTANTS),
    "tt": ("TIMESTAMP", _INSTANTS),
    "nt": ("TIMESTAMP_NTZ", _TIMES),
    "nn": ("TIMESTAMP_NTZ", _TIMES),
    "ai": ("ARRAY<INT>", [[], [1, 2, 3], [None, 2], [5]]),
    "at": ("ARRAY<STRING>", [[], ["a", None, "b"], ["é"], [None]]),
    "ax": ("ARRAY<DOUBLE>", [[], [1.5, math.nan], [-0.0, 2.5, None]]),
    "mp": ("MAP<STRING, INT>", [{}, {"a": 1, "b": None}, {"": 3}]),
    "aj": ("ARRAY<INT>", [[], [2, 2, None, 1, None], [3, -1], [2**31 - 1, 0]]),
    "bt": ("ARRAY<STRING>", [[], ["b", "a", "", None], ["é", "😀", "é"], ["c"]]),
    "ay": ("ARRAY<DOUBLE>", [[], [math.nan, 1.5, math.nan], [0.0, -0.0, None], [math.inf, -1.0]]),
    "aa": ("ARRAY<ARRAY<INT>>", [[], [[1], [], [2, None]], [[1], None], [[3], [3]]]),
    "st": ("STRUCT<a: INT, b: STRING, c: ARRAY<INT>>", _STRUCTS),
    "su": ("ARRAY<STRUCT<k: STRING, v: INT>>", [[], [{"k": "a", "v": 1}, {"k": "b", "v": None}], [{"k": "x", "v": 2}, None]]),
    "mq": ("MAP<STRING, INT>", [{}, {"x": 1, "y": None}, {"b": 7}]),
    "js": ("STRING", _JSON),
    "url": ("STRING", _URLS),
}
COLUMNS = Record.of({name: type_ for name, (type_, _) in _COLUMNS.items()})
ROWS = 40


_GIVEN: Mapping[str, list[str]] = {
    # Not a text of two thousand million letters, and no dates that Python does not know.
    "REPEAT": ["s, k"], "SPACE": ["k"], "LPAD": ["s, j", "s, j, t", "s, k, u"], "RPAD": ["s, j", "s, j, t", "s, k, u"],
    "DATE_ADD": ["day, j", "ts, k", "nt, j"], "DATE_SUB": ["day, j", "ts, k", "nt, j"],
    "ADD_MONTHS": ["day, j", "ts, k"], "DATE_FROM_UNIX_DATE": ["j"],
    "MAKE_DATE": ["2000 + j, k, j", "2024, 2, 10 * k"],
    "TIMESTAMP_MILLIS": ["m", "k"], "TIMESTAMP_MICROS": ["m", "i"],
    "TIMESTAMP_SECONDS": ["m", "k", "d", "CAST(d AS DOUBLE)"],
    "MAKE_TIMESTAMP": ["2000 + j, k, j, j, k, e", "2024, k, 3, 4, 5, 60", "2024, k, 3, 4, 5, 1, zone"],
    "MAKE_TIMESTAMP_LTZ": ["2000 + j, k, j, j, k, e", "2024, k, 3, 4, 5, 1, zone"],
    "MAKE_TIMESTAMP_NTZ": ["2000 + j, k, j, j, k, e", "2024, k, 3, 4, 5, 60"],
    "FROM_UTC_TIMESTAMP": ["ts, zone", "nt, zone", "day, 'Asia/Tokyo'"],
    "TO_UTC_TIMESTAMP": ["ts, zone", "nt, zone", "day, 'Asia/Tokyo'"],
    "CONVERT_TIMEZONE": ["zone, nt", "zone, 'Asia/Tokyo', nt", "'Asia/Tokyo', zone, nt"],
    "FROM_UNIXTIME": ["m", "m, 'yyyy/MM/dd HH:mm'"],
    "ARRAY_CONTAINS": ["ai, i", "ax, x", "at, s", "ai, j"], "ARRAY_POSITION": ["ai, i", "ax, x", "at, s", "ai, j"],
    "ARRAY_JOIN": ["at, t", "at, t, u"], "ELEMENT_AT": ["ai, j", "ax, k", "mp, t"], "GET": ["ai, j", "at, k"],
    "TRY_ELEMENT_AT": ["ai, j", "at, k", "mp, t"],
    "SIZE": ["ai", "mp", "aa", "su"], "MAP_CONTAINS_KEY": ["mp, t"], "ARRAY_SIZE": ["at"],
    "ARRAY": ["i, j", "i, d", "s, t, 'x'", "x, f, i", "ai, aj", "st, st", "day, ts", "mp, mq", "NULL, i"],
    "ARRAY_APPEND": ["ai, i", "at, s", "CAST(ai AS ARRAY<BIGINT>), i", "aa, ai", "ax, x", "su, NULL"],
    "ARRAY_PREPEND": ["ai, i", "at, s", "CAST(ai AS ARRAY<BIGINT>), i", "aa, ai", "ax, x"],
    "ARRAY_INSERT": ["aj, k, i", "bt, k, s", "aj, j, i", "ai, -1, i", "ai, -2, i", "aj, -k, i", "ai, -16, i"],
    "ARRAY_REMOVE": ["aj, 2", "aj, j", "bt, t", "ay, x", "aa, ai"], "ARRAY_REPEAT": ["i, k", "s, j", "ai, k", "st, 2"],
    "SLICE": ["aj, k, j", "bt, j, k", "aj, -2, 2", "ay, 1, 2"], "SORT_ARRAY": ["aj", "aj, TRUE", "bt, FALSE", "ay", "ay, FALSE"],
    "SEQUENCE": ["k, j", "j, k", "k, j, k", "1, j, 3", "CAST(k AS BIGINT), 7", "day, DATE_ADD(day, k)", "day, DATE_SUB(day, j)"],
    "ARRAYS_ZIP": ["ai, at", "aj, aa, bt"], "FLATTEN": ["aa", "ARRAY(at, bt)"],
    "NAMED_STRUCT": ["'a', i, 'B', s", "'x', st, 'y', ai", "'m', mp"], "STRUCT": ["i, s AS t, 1", "GET(su, 0).k, ai", "CAST(i AS STRING), d"],
    "MAP": ["'a', i, 'b', j", "s, d, 'other', e", "'x', ai, 'y', aj"], "MAP_FROM_ARRAYS": ["ARRAY('a', t), ARRAY(i, j)", "bt, bt"],
    "MAP_FROM_ENTRIES": ["su", "ARRAY(STRUCT(s, i))"], "MAP_CONCAT": ["mp, mq", "mp", "mp, MAP('k', l)", "mp, mp"],
    "STR_TO_MAP": ["s", "CONCAT('a:1,b,', t)", "'a=1&b=2&c', '&', '='", "s, ' ', 'b'", "CONCAT('x|', t), '\\\\|'"],
    "TRANSFORM": ["ai, x -> x + i", "at, x -> UPPER(x)", "aj, (x, n) -> x * n", "aa, x -> TRANSFORM(x, y -> y + i + SIZE(x))",
                  "su, x -> x.v", "su, x -> STRUCT(x.k AS a, i AS b)", "ai, i -> i", "at, x -> CONCAT(x, t)",
                  "ai, x -> x + j + i", "aa, x -> FILTER(x, y -> y > 1)", "aj, x -> CAST(x AS STRING)", "ai, x -> aj",
                  "aa, x -> ARRAY_DISTINCT(x)", "aj, x -> CASE WHEN x > 1 THEN x END"],
    "FILTER": ["aj, x -> x > 1", "aj, (x, n) -> n % 2 = 0", "bt, x -> x > t", "aa, x -> SIZE(x) > 0", "su, x -> x.v IS NULL"],
    "EXISTS": ["aj, x -> x = j", "bt, x -> x = t", "ay, x -> x > 1", "aa, x -> EXISTS(x, y -> y = 2)", "ai, x -> NULL"],
    "FORALL": ["aj, x -> x >= 0", "bt, x -> x <> t", "ay, x -> x > 0"],
    "AGGREGATE": ["ai, 0, (a, x) -> a + x", "at, '', (a, x) -> CONCAT(a, x)", "aj, CAST(0 AS BIGINT), (a, x) -> a + COALESCE(x, i)",
                  "aj, 0, (a, x) -> a + COALESCE(x, 0), a -> a * 2", "aa, 0, (a, x) -> a + SIZE(x)",
                  "ai, ARRAY(0), (a, x) -> ARRAY_APPEND(a, x)", "aj, STRUCT(0 AS n, 0 AS s), (a, x) -> STRUCT(a.n + 1 AS n, a.s + COALESCE(x, 0) AS s), a -> a.s / a.n"],
    "ZIP_WITH": ["ai, aj, (x, y) -> x + y", "ai, at, (x, y) -> STRUCT(x, y)", "ai, aj, (x, y) -> COALESCE(x, y, i)"],
    "MAP_FILTER": ["mp, (k, v) -> v > 0", "mp, (k, v) -> k = t", "mp, (k, v) -> v IS NULL"],
    "TRANSFORM_KEYS": ["mp, (k, v) -> CONCAT(k, t)", "mp, (q, v) -> 'x'"],
    "TRANSFORM_VALUES": ["mp, (k, v) -> v + i", "mp, (k, v) -> CONCAT(k, v)", "mp, (q, v) -> ARRAY(v, k)"],
    "MAP_ZIP_WITH": ["mp, mq, (q, a, b) -> COALESCE(a, b)", "mp, MAP('a', s), (q, a, b) -> CONCAT(q, COALESCE(b, '-'))"],
    "FROM_JSON": ["js, 'a INT, b STRING, c ARRAY<INT>'", "js, 'a DOUBLE, b DOUBLE'", "js, 'ARRAY<INT>'", "js, 'MAP<STRING, STRING>'",
                  "js, 'a BIGINT, b BOOLEAN, c MAP<STRING, INT>'", "js, 'a DECIMAL(5,2), b STRUCT<x: ARRAY<INT>>, x STRUCT<y: STRUCT<a: INT>>'",
                  "js, 'ARRAY<STRUCT<a: INT>>'", "js, 'MAP<STRING, INT>'", "js, 'STRUCT<a: STRING, b: STRING, c: STRING, x: STRING>'",
                  "s, 'a STRUCT<b: ARRAY<STRING>>'"],
    "TO_JSON": ["st", "STRUCT(i, s, d, x, f, b, day, ts, nt, z, l)", "su", "mp", "ai", "aa", "ax", "STRUCT(st AS inner, mp, su)", "MAP(s, x)"],
    "JSON_OBJECT_KEYS": ["js", "s"], "GET_JSON_OBJECT": ["js, '$.a'", "js, '$.b.x'", "js, '$.c[0]'", "js, '$.c'", "js, '$'", "js, '$.b.x[1]'", "js, '$.b'", "js, '$[0].a'", "s, '$.a.b[0]'", "s, '$.a.b'", "s, '$[1]'"],
    "JSON_ARRAY_LENGTH": ["js", "s"], "BIT_GET": ["i, k", "l, k", "i, j", "l, 40"],
    "PARSE_URL": [f"url, '{part}'" for part in ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO", "x")] + ["url, 'QUERY', 'k'", "url, 'QUERY', t", "url, 'HOST', 'k'"],
    "TRY_PARSE_URL": [f"url, '{part}'" for part in ("HOST", "PATH", "QUERY", "AUTHORITY")] + ["url, 'QUERY', 'k'"],
    "FORMAT_STRING": ["'a%%b%n'", "'%s|%s|%s', s, i, x", "'%5d|%-5d|%05d|%,d|%+d', i, i, i, i, i", "'%x|%X', l, i", "'%.2f|%10.1f|%,.3f|%f', x, x, x, x", "'%.1f|%+.2f', f, x",
                      "'%10s|%-10s|', s, t", "'%2$s %1$s', s, t", "'%s %s', b, f", "'%f', f", "'%08d', l"],
    "TRY_MAKE_TIMESTAMP": ["2000 + j, k, j, j, k, e", "2024, k, 3, 4, 5, 60", "2024, k, i, 1, 1, 1, zone", "2024, k, 3, j, 5, 1, 'Europe/Berlin'"],
    "TRY_MAKE_TIMESTAMP_NTZ": ["2000 + j, k, j, j, k, e", "2024, k, i, 1, 1, 60"],
    "HASH": ["i", "l", "s", "d", "x", "f", "z", "b", "day", "ts", "nt", "i, s, x, NULL, z", "CONCAT(s, REPEAT(t, 40))", "js, url"],
    "XXHASH64": ["i", "l", "s", "d", "x", "f", "z", "b", "day", "ts", "nt", "i, s, x, NULL, z", "CONCAT(s, REPEAT(t, 40))", "js, url"],
    "TO_BINARY": ["s", "s, 'hex'", "s, 'utf-8'"], "TRY_TO_BINARY": ["s", "s, 'hex'", "t, 'utf-8'"], "FROM_BASE32": ["TO_BASE32(z)", "s", "url", "CONCAT(t, 'MZ XW6')"],
    "JARO_WINKLER_SIMILARITY": ["s, t", "js, url", "url, REVERSE(url)", "'MARTHA', s"],
    "SPLIT": ["s, ','", "s, '[0-9]+'", "s, 'b', 2", "s, ' ', -1", "s, ',', 1", "url, '/'", "js, '\\\\{'", "s, '[,.]'"],
    "REGEXP_EXTRACT_ALL": [r"s, '([a-z])(\\d?)'", r"s, '([a-z])(b)?', 2", r"js, '\\d+', 0", r"url, '(k)=(.)', 1"],
    "REGEXP_INSTR": [r"s, '\\d'", "s, 'b|c'", r"js, '[\\]}]$'", "s, '^a'", "s, 'x*y*'", "s, '(?i)B'"],
    "TIMESTAMP": _NUMBERS_AS_TIMES, "TRY_TO_TIMESTAMP": _NUMBERS_AS_TIMES, "OVERLAY": ["s, t, j", "s, t, j, k"],
    "CONV": ["s, 10, 16", "s, 16, 10", "s, 10, -2", "s, j, k"],
}  # fmt: skip
"""Arguments that are not those of the kinds."""


def values(seed: int) -> dict[str, list[Any]]:
    """Rows in which each value of each column occurs, NULL too, and meets others by chance."""
    rng = random.Random(seed)
    found = {}
    for name, (_, edges) in _COLUMNS.items():
        column = [*edges, None]
        column += [rng.choice(edges) for _ in range(ROWS - len(column))]
        rng.shuffle(column)
        found[name] = column
    return found


_ARGUMENTS: Mapping[str, list[list[str]]] = {
    "text": [["s", "t", "u"]],
    "int": [["j", "k", "i"], ["i", "j", "k"]],
    "bigint": [["m"], ["l"], ["i"]],
    "integer": [["i", "j"], ["l", "m"]],
    "decimal": [["d"]],
    "double": [["x", "y", "f", "d"], ["i", "d", "x", "y"]],
    "float": [["x", "y"], ["f"]],
    "number": [["x", "y"], ["i", "j"], ["d", "e"], ["l", "d"], ["w", "d"], ["f", "i"], ["p", "k"]],
    "boolean": [["b", "c"]],
    "binary": [["z"]],
    "date": [["day", "eve"], ["ts", "tt"], ["nt", "day"]],
    "timestamp": [["ts", "tt"], ["nt", "ts"], ["day", "nt"]],
    "local": [["nt"]],
    "instant": [["ts"], ["nt"]],
    "day": [["day"]],
    "moment": [["ts", "tt"], ["day", "eve"], ["nt", "nn"]],
    "any": [["i", "j", "k", "i", "j"], ["s", "t", "u", "s"], ["d", "e", "i", "d"], ["ts", "tt", "day"],
            ["x", "y", "x", "y"], ["b", "c", "b"]],
    "any array": [["ai"], ["ax"]],
    "any map": [["mp"]],
    "array": [["ai", "aj"], ["ax", "ay"], ["at", "bt"], ["aa"], ["su"], ["ay"], ["aj"]],
    "map": [["mp"], ["mq"]],
}  # fmt: skip
_UNITS = ["MICROSECOND", "SECOND", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]
_FORMATS = [["'yyyy-MM-dd'"], ["'dd.MM.yyyy'"], ["'yyyy-M-d'"]]
_TIME_FORMATS = [["'yyyy-MM-dd HH:mm:ss.SSS'"], ["'yyyy-MM-dd'"]]
_WRITTEN: Mapping[str, list[list[str]]] = {
    "ROUND": [["0"], ["1"], ["-1"], ["3"]],
    "BROUND": [["0"], ["1"], ["-1"]],
    "FORMAT_NUMBER": [["0"], ["2"], ["-1"]],
    "SHA2": [["0"], ["224"], ["256"], ["384"], ["512"], ["5"]],
    "ENCODE": [["'UTF-8'"]],
    "DECODE": [["'UTF-8'"]],
    "EXTRACT": [[f"'{field}'"] for field in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOW", "DOY", "HOUR", "MINUTE",
                                             "SECOND", "YEAROFWEEK", "DAYOFWEEK_ISO")],
    "NEXT_DAY": [["'MO'"], ["'Sun'"], ["'FRIDAY'"]],
    "DATE_TRUNC": [[f"'{unit}'"] for unit in [*_UNITS, "MILLISECOND", "MINUTE", "mon", "DD"]],
    "TRUNC": [["'YEAR'"], ["'QUARTER'"], ["'MM'"], ["'WEEK'"]],
    "TIMESTAMPADD": [[unit] for unit in _UNITS],
    "TIMESTAMPDIFF": [[unit] for unit in _UNITS],
    "DATE_FORMAT": [["'yyyy-MM-dd HH:mm:ss.SSSSSS'"], ["'E EEEE d MMM MMMM yy'"], ["'hh:mm a D'"],
                    ["\"dd'T'H:m:s %\""]],
    "FROM_UNIXTIME": [["'yyyy/MM/dd HH:mm'"]],
    "UNIX_TIMESTAMP": [["'yyyy-MM-dd'"], ["'yyyy-MM-dd HH:mm:ss.SSS'"]],
    "TO_DATE": _FORMATS, "TRY_TO_DATE": _FORMATS,
    "TO_TIMESTAMP": _TIME_FORMATS, "TO_TIMESTAMP_NTZ": _TIME_FORMATS, "TRY_TO_TIMESTAMP": _TIME_FORMATS,
    "REGEXP_LIKE": [[r"'^[a-c]+'"], [r"'(?i)ABC|\\d$'"], [r"'\\s.'"], [r"'[^\\w,]'"]],
    "REGEXP_REPLACE": [[r"'([a-z])(\\d?)'", "'<$2$1>'"], [r"'\\s+'", "''"], [r"'[,.]'", r"'\\\\'"]],
    "REGEXP_EXTRACT": [[r"'(a)|(b)'", "2"], [r"'([a-z]+)'", "1"], [r"'(\\d)+'", "0"]],
    "REGEXP_SUBSTR": [[r"'\\d+'"], ["'b*'"]],
    "REGEXP_COUNT": [["'a'"], [r"'\\w+'"]],
}  # fmt: skip


def functions() -> Iterator[ScalarFunction]:
    """Every function of the tables."""
    for family in FAMILIES.values():
        yield from family


def calls(function: ScalarFunction) -> Iterator[str]:
    """Calls of a function under each of its names, with columns of every kind that it takes."""
    first, *others = function.names.split()
    kinds = function.kinds
    if kinds and kinds[-1].endswith("..."):
        kinds = [*kinds[:-1], *[kinds[-1].removesuffix("...")] * 2]
    if first in _GIVEN:
        given = [each for each in _GIVEN[first] if function.takes_count(each.count(", ") + 1)]
        yield from (f"{name}({each})" for name in (first, *others) for each in given)
        return
    written = _WRITTEN.get(first, [[]])
    choices = {kind: _ARGUMENTS.get(kind, [[]]) for kind in kinds}
    for turn in range(max([len(each) for each in choices.values()] + [len(written)], default=1)):
        found = list(_call(kinds, choices, iter(written[turn % len(written)]), turn))
        yield f"{first}({', '.join(found)})"
        if turn == 0:
            for name in others:
                yield f"{name}({', '.join(found)})"


def _call(kinds: list[str], choices: Mapping[str, list[list[str]]], written: Iterator[str], turn: int) -> Iterator[str]:
    used: dict[str, itertools.count[int]] = {}
    for kind in kinds:
        if kind == "unit" or kind.startswith("'"):
            yield next(written)
            continue
        columns = choices[kind][turn % len(choices[kind])]
        place = next(used.setdefault(kind, itertools.count()))
        yield columns[place % len(columns)]


_TARGETS = ["BOOLEAN", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(38,18)", "DECIMAL(5,3)", "STRING",
            "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"]  # fmt: skip


_AS_TIMES = {"i": "j", "l": "m", "w": "d", "f": "CAST(d AS FLOAT)", "x": "CAST(d AS DOUBLE)"}
"""Numbers that are times which Python knows."""


def casts() -> Iterator[str]:
    """Casts of every type to every other one."""
    for column in ("i", "l", "d", "w", "p", "f", "x", "s", "z", "b", "day", "ts", "nt"):
        for target in _TARGETS:
            value = _AS_TIMES.get(column, column) if "STAMP" in target else column
            yield from (f"{word}({value} AS {target})" for word in ("CAST", "TRY_CAST"))


_LEFT = ("i", "l", "d", "w", "x", "p")
_RIGHT = ("j", "e", "w", "y", "f", "3", "CAST(l AS DECIMAL(20,0))")
_SIGNS = ("+", "-", "*", "/", "%", "=", "<", "<=>")
ARITHMETIC = [f"{left} {sign} {right}" for left, right, sign in itertools.product(_LEFT, _RIGHT, _SIGNS)]
"""Numbers of every type with every other one."""
