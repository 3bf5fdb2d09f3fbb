"""Every aggregate function against its definition: a few lines of exact Python arithmetic over the current rows.

Random changelogs of several kinds of tables, with duplicates, NULLs and NaN, are cut into random batches, with and
without local pre-aggregation. After every batch each group must have the result that the definition says.
Floating-point results may differ from the exact ones in the last few digits.

A row that a batch retracts and inserts again counts as unchanged. The order of arrival is by the batch since which a
row has been present, then by the order within the batch. Of equal rows, the oldest are retracted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rowkind.avro.json_rows import decode
from rowkind.operators.aggregate import partial as partial_aggregate
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import Fold, MemoryEngine
from tests.plan.cases import Case
from tests.plan.changelogs import World, bare_updates
from tests.seeds import seeds

Rows = Sequence[tuple[Any, Any, Any]]
"""The x, y and s of the rows of a group."""

ULPS = 1e-14


@dataclass(frozen=True)
class Source:
    """A table, its grouping column, and the columns that serve as x, y (numbers) and s (text)."""

    table: str
    group: str
    x: str
    y: str
    s: str


SOURCES = (
    Source("orders", "customer_id", "amount", "order_id", "status"),
    Source("moves", "shop", "quantity", "shop", "item"),
    Source("stock", "shop", "quantity", "quantity", "item"),
    Source("clicks", "day", "customer_id", "customer_id", "page"),
)


def _order(value: Any) -> Any:
    """Return a sort key that compares as SQL does: NaN is the greatest value."""
    if isinstance(value, str):
        return value.encode()
    return (math.isnan(value), 0 if math.isnan(value) else value)


def _there(values: Sequence[Any]) -> list[Any]:
    return sorted((value for value in values if value is not None), key=_order)


def _xs(rows: Rows) -> list[Any]:
    return [x for x, _, _ in rows]


def _moments(function: Callable[[int, Any], Fraction | None], least: int = 1) -> Callable[[Rows], float | None]:
    """Return a definition over the number of values and the sums of products of their distances from the means."""

    def of(rows: Rows) -> float | None:
        pairs = [(Fraction(y), x) for x, y, _ in rows if x is not None and y is not None]
        if function.__code__.co_varnames[1] == "x":
            pairs = [(Fraction(0), x) for x, _, _ in rows if x is not None]
        if len(pairs) < least:
            return None
        if any(math.isnan(x) for _, x in pairs):
            return math.nan
        xs, ys, n = [Fraction(float(x)) for _, x in pairs], [y for y, _ in pairs], len(pairs)

        def central(name: str) -> Fraction:
            means = {"x": sum(xs) / n, "y": sum(ys) / n}
            rows_ = [{"x": x, "y": y} for x, y in zip(xs, ys, strict=True)]
            return sum((math.prod(row[each] - means[each] for each in name) for row in rows_), Fraction(0))

        result = function(n, central)
        return None if result is None else float(result)

    return of


def _over(value: Fraction, divisor: Fraction) -> Fraction | None:
    return value / divisor if divisor else None


def _root(value: Fraction) -> Fraction:
    return Fraction(math.sqrt(value))


def _percentile(values: list[Any], p: float) -> float | None:
    if not values:
        return None
    position = (len(values) - 1) * p
    low, high = float(values[math.floor(position)]), float(values[math.ceil(position)])
    if low == high or math.floor(position) == math.ceil(position):
        return low
    return (math.ceil(position) - position) * low + (position - math.floor(position)) * high


def _discrete(values: list[Any], p: float) -> Any:
    return values[max(math.ceil(len(values) * p) - 1, 0)] if values else None


def _mode(values: list[Any]) -> Any:
    """Return the most frequent value; of several, the first."""
    times = Counter(map(_order, values))
    return next((each for each in values if times[_order(each)] == max(times.values())), None)


def _distinct(values: list[Any]) -> list[Any]:
    return [each for at, each in enumerate(values) if at == 0 or _order(each) != _order(values[at - 1])]


def _texts(rows: Rows) -> list[Any]:
    return _there([s for _, _, s in rows])


def _by_y(rows: Rows) -> list[Any]:
    """Return the texts by y, greatest first and NULL last, then in their own order."""
    there = [row for row in rows if row[2] is not None]
    return [s for _, _, s in sorted(there, key=lambda row: (row[1] is None, -(row[1] or 0), _order(row[2])))]


def _joined(texts: list[Any], separator: str) -> str | None:
    return separator.join(texts) if texts else None


@dataclass(frozen=True)
class Defined:
    """A call over columns x, y and s, and its definition; with `any_of` the definition returns all allowed results."""

    sql: str
    meaning: Callable[[Rows], Any]
    any_of: bool = False


def _by(best: Callable[..., Any]) -> Callable[[Rows], list[Any]]:
    def of(rows: Rows) -> list[Any]:
        ordered = [(_order(x), s) for x, _, s in rows if x is not None]
        return [s for x, s in ordered if x == best(each for each, _ in ordered)] or [None]

    return of


_deviation = _moments(lambda n, x: _root(x("xx") / n))

DEFINED = (
    Defined("FIRST({s})", lambda rows: rows[0][2]),
    Defined("LAST({s})", lambda rows: rows[-1][2]),
    Defined("FIRST_VALUE({x}, true)", lambda rows: next((x for x in _xs(rows) if x is not None), None)),
    Defined("LAST_VALUE({x}) IGNORE NULLS", lambda rows: next((x for x in _xs(rows)[::-1] if x is not None), None)),
    Defined("LAST({x}) FILTER (WHERE {s} = 'a')", lambda rows: next((x for x, _, s in rows[::-1] if s == "a"), None)),
    Defined("MAX_BY({s}, {x})", _by(max), any_of=True),
    Defined("MIN_BY({s}, {x})", _by(min), any_of=True),
    Defined("COLLECT_LIST({x})", lambda rows: _there(_xs(rows))),
    Defined("COLLECT_SET({s})", lambda rows: _distinct(_texts(rows))),
    Defined("ARRAY_AGG(DISTINCT {x})", lambda rows: _distinct(_there(_xs(rows)))),
    Defined("LISTAGG({s}, '; ')", lambda rows: _joined(_texts(rows), "; ")),
    Defined("STRING_AGG({s}) WITHIN GROUP (ORDER BY {y} DESC)", lambda rows: _joined(_by_y(rows), "")),
    Defined(
        "LISTAGG(DISTINCT {s}, ',') WITHIN GROUP (ORDER BY {s} DESC)",
        lambda rows: _joined(_distinct(_texts(rows))[::-1], ","),
    ),
    Defined("PERCENTILE({x}, 0.3)", lambda rows: _percentile(_there(_xs(rows)), 0.3)),
    Defined(
        "MEDIAN({x}) FILTER (WHERE {s} <> 'b')",
        lambda rows: _percentile(_there([x for x, _, s in rows if s not in (None, "b")]), 0.5),
    ),
    Defined(
        "PERCENTILE_CONT(0.2) WITHIN GROUP (ORDER BY {y} DESC)",
        lambda rows: _percentile(_there([y for _, y, _ in rows])[::-1], 0.2),
    ),
    Defined("PERCENTILE_APPROX({x}, 0.6)", lambda rows: _discrete(_there(_xs(rows)), 0.6)),
    Defined("MODE({x})", lambda rows: _mode(_there(_xs(rows)))),
    Defined("MODE() WITHIN GROUP (ORDER BY {s} DESC)", lambda rows: _mode(_texts(rows)[::-1])),
    Defined("APPROX_COUNT_DISTINCT({x})", lambda rows: len(_distinct(_there(_xs(rows))))),
    Defined("VAR_POP({x})", _moments(lambda n, x: x("xx") / n)),
    Defined("VAR_SAMP({x})", _moments(lambda n, x: x("xx") / (n - 1), 2)),
    Defined("STDDEV({x})", _moments(lambda n, x: _root(x("xx") / (n - 1)), 2)),
    Defined("STDDEV_POP(DISTINCT {y})", lambda rows: _deviation([(y, 0, "") for y in {y for _, y, _ in rows}])),
    Defined("SKEWNESS({x})", _moments(lambda n, x: _over(_root(Fraction(n)) * x("xxx"), _root(x("xx") ** 3)))),
    Defined("KURTOSIS({x})", _moments(lambda n, x: _over((n * x("xxxx") - 3 * x("xx") ** 2), x("xx") ** 2))),
    Defined("COVAR_POP({y}, {x})", _moments(lambda n, of: of("xy") / n)),
    Defined("COVAR_SAMP({y}, {x})", _moments(lambda n, of: of("xy") / (n - 1), 2)),
    Defined("CORR({y}, {x})", _moments(lambda _, of: _over(of("xy"), _root(of("xx") * of("yy"))))),
    Defined("REGR_SLOPE({y}, {x})", _moments(lambda _, of: _over(of("xy"), of("xx")))),
    Defined(
        "REGR_R2({y}, {x})",
        _moments(lambda _, of: _over(of("xy") ** 2, of("xx") * of("yy")) if of("yy") else _over(of("xx"), of("xx"))),
    ),
    Defined("REGR_SXY({y}, {x})", _moments(lambda _, of: of("xy"))),
    Defined("REGR_COUNT({y}, {x})", lambda rows: sum(x is not None and y is not None for x, y, _ in rows)),
)


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("form", ["groups", "partitions", "all rows"])
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.table)
def test_each_function_is_what_its_definition_says_after_every_batch(
    source: Source, form: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups, partitions and all rows have the results that the definitions give for the current rows."""
    if seed % 2:
        monkeypatch.setattr(partial_aggregate, "WORTH", 100.0)
    names = {"x": source.x, "y": source.y, "s": source.s}
    over = {"groups": "", "partitions": f" OVER (PARTITION BY {source.group})", "all rows": " OVER ()"}[form]
    calls = ", ".join(f"{each.sql.format(**names)}{over} AS c{number}" for number, each in enumerate(DEFINED))
    sql = f"SELECT {source.group} AS k, {calls} FROM {source.table}"
    sql += f" GROUP BY {source.group}" if form == "groups" else ""
    job = Case(Path("case.txt"), "A case.\nsink: retract", sql, "").job(tmp_path)
    sink = plan(job, "result")
    engine, fold = MemoryEngine(sink), Fold(keyed=False)
    arrived: list[dict[str, Any]] = []
    for number, (batch, tables) in enumerate(World.of(job, bare_updates(sink), seed).batches(12)):
        fold.apply(engine.batch(batch, now=number)["result"])
        found = decode(sink.value, pa.array(fold.payloads, pa.binary()))
        rows = arrived = _arrived(arrived, tables[source.table].to_pylist(), _columns(source))
        groups: dict[Any, list[tuple[Any, Any, Any]]] = {}
        for row in rows:
            key = row[source.group] if form != "all rows" else None
            groups.setdefault(key, []).append(tuple(map(_plain, (row[source.x], row[source.y], row[source.s]))))
        assert len(found) == (len(groups) if form == "groups" else len(rows)), f"batch {number}"
        for row in found:
            of = groups[_key(row["k"], groups)] if form != "all rows" else groups[None]
            for at, each in enumerate(DEFINED):
                _check(f"batch {number}: {each.sql.format(**names)} of {of}", each, row[f"c{at}"], each.meaning(of))


def _columns(source: Source) -> list[str]:
    return sorted({source.group, source.x, source.y, source.s, *(["order_id"] if source.table == "orders" else [])})


def _arrived(before: list[dict[str, Any]], rows: list[dict[str, Any]], columns: list[str]) -> list[dict[str, Any]]:
    """Return the rows in order of arrival: those that were present before (the latest of equal ones), then new ones."""

    def seen(row: dict[str, Any]) -> str:
        return repr([_plain(row[column]) for column in columns])

    left = Counter(map(seen, rows))
    kept = []
    for row in reversed(before):
        if left[seen(row)]:
            left[seen(row)] -= 1
            kept.append(row)
    came = []
    for row in reversed(rows):
        if left[seen(row)]:
            left[seen(row)] -= 1
            came.append(row)
    return [*reversed(kept), *reversed(came)]


def _key(written: Any, groups: dict[Any, Any]) -> Any:
    return next(key for key in groups if key == written or str(key) == str(written))


def _plain(value: Any) -> Any:
    """Return 0.0 for -0.0, since SQL treats them as equal."""
    return value + 0.0 if isinstance(value, float) else value


def _check(what: str, defined: Defined, found: Any, expected: Any) -> None:
    if defined.any_of:
        assert found in expected, f"{what}: {found}, not one of {expected}"
    else:
        assert _same(found, expected), f"{what}: {found}, not {expected}"


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    if found is None or expected is None:
        return found is expected
    if isinstance(expected, str | int):
        return bool(found == expected)
    if isinstance(expected, Decimal):
        return Decimal(found) == expected
    if math.isnan(expected):
        return math.isnan(float(found))
    return math.isclose(float(found), expected, rel_tol=ULPS, abs_tol=ULPS)
