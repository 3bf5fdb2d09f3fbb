"""Compiles the addition and subtraction of an INTERVAL literal or a number of days to or from a date or timestamp."""

from __future__ import annotations

import re
from decimal import Decimal

from sqlglot import exp

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.compiler import Compiler
from rowkind.service.plan.scalar.typed import Typed, nullable
from rowkind.service.plan.scalar.types import DATE, INT, LOCAL, TIMESTAMP, family

_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
}
_DAYS = {"DAY": 1, "WEEK": 7}
_MONTHS = {"MONTH": 1, "YEAR": 12}
_ORDER = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_PARTS = r"(\d+)", r"(\d+)", r"(\d+)", r"(\d+)", r"(\d+)", r"(\d+(?:\.\d+)?)"
_BETWEEN = {"MONTH": "-", "HOUR": " ", "MINUTE": ":", "SECOND": ":"}
_NO_NUMBER = "expected an INTERVAL literal, such as INTERVAL '3' DAY or INTERVAL '1 02:03:04' DAY TO SECOND"


def moved(compiler: Compiler, node: exp.Add | exp.Sub) -> Typed | None:
    """Compile a date or timestamp plus or minus an INTERVAL or a number of days.

    Return None if the node is any other operation. Raises Refusal.
    """
    left, right = node.left.unnest(), node.right.unnest()
    if isinstance(node, exp.Add) and _is_interval(left) and not _is_interval(right):
        left, right = right, left
    sign = "+" if isinstance(node, exp.Add) else "-"
    if _is_interval(right):
        if _is_interval(left):
            raise Refusal("an INTERVAL can be added only to a date or timestamp", node)
        return _by_interval(compiler, sign, left, right)
    value, days = compiler.compile(left), compiler.compile(right)
    if isinstance(node, exp.Add) and family(days.type) == "date":
        value, days = days, value
    times = ("date", "timestamp", "local")
    if family(value.type) in times and family(days.type) in times:
        raise Refusal(
            "two times cannot be subtracted, because the result would be an INTERVAL: write DATEDIFF or "
            "TIMESTAMPDIFF(SECOND, from, to)",
            node,
        )
    if family(value.type) == "date" and days.type.required == INT:
        return Typed(f"CAST({value.sql} {sign} {days.sql} AS DATE)", nullable(DATE, value, days))
    return None


def _is_interval(node: exp.Expr) -> bool:
    """Return whether a node is an INTERVAL, which may have several parts, as in INTERVAL 1 DAY 2 HOURS."""
    if isinstance(node, exp.Add | exp.Sub):
        return _is_interval(node.left.unnest()) and _is_interval(node.right.unnest())
    return isinstance(node, exp.Interval)


def _by_interval(compiler: Compiler, sign: str, moment: exp.Expr, interval: exp.Expr) -> Typed:
    value = compiler.compile(moment)
    months, days, micros = amount(interval)
    if sign == "-":
        months, days, micros = -months, -days, -micros
    kind = family(value.type)
    if kind not in ("date", "timestamp", "local"):
        raise Refusal(f"an INTERVAL can be added only to a date or timestamp, not {value.type.sql}", moment)
    plain = value.sql if kind == "local" else f"CAST({value.sql} AS TIMESTAMP)"
    steps = [
        f"to_{unit}s({count})" for unit, count in (("month", months), ("day", days), ("microsecond", micros)) if count
    ]
    sql = f"({' + '.join([plain, *steps])})"
    if kind == "local":
        return Typed(sql, nullable(LOCAL, value))
    if kind == "date" and not micros:
        return Typed(f"CAST({sql} AS DATE)", nullable(DATE, value))
    return Typed(f"CAST({sql} AS TIMESTAMPTZ)", nullable(TIMESTAMP, value))


def amount(node: exp.Expr) -> tuple[int, int, int]:
    """Return an INTERVAL as months, days and microseconds. Raises Refusal."""
    if isinstance(node, exp.Add | exp.Sub):
        turn = 1 if isinstance(node, exp.Add) else -1
        first, second = amount(node.left.unnest()), amount(node.right.unnest())
        months, days, micros = (a + turn * b for a, b in zip(first, second, strict=True))
        return months, days, micros
    number, unit = node.this, node.args.get("unit")
    if not isinstance(number, exp.Literal) or unit is None:
        raise Refusal(_NO_NUMBER, node)
    text = str(number.this).strip()
    if isinstance(unit, exp.IntervalSpan):
        return _span(node, text, unit.this.name.upper(), unit.expression.name.upper())
    if not re.fullmatch(r"[+-]?\d+(\.\d+)?", text):
        raise Refusal(_NO_NUMBER, node)
    return _of_unit(node, Decimal(text), unit.name.upper())


def _of_unit(node: exp.Expr, number: Decimal, unit: str) -> tuple[int, int, int]:
    unit = unit.removesuffix("S")
    if unit in _MICROS and (unit == "SECOND" or number == int(number)):
        return 0, 0, int(number * _MICROS[unit])
    if number == int(number):
        if unit in _DAYS:
            return 0, int(number) * _DAYS[unit], 0
        if unit in _MONTHS:
            return int(number) * _MONTHS[unit], 0, 0
    raise Refusal(_NO_NUMBER, node)


def _span(node: exp.Expr, text: str, first: str, last: str) -> tuple[int, int, int]:
    """Return an INTERVAL such as '1-2' YEAR TO MONTH as months, days and microseconds. Raises Refusal."""
    if first not in _ORDER or last not in _ORDER:
        raise Refusal(_NO_NUMBER, node)
    start, end = _ORDER.index(first), _ORDER.index(last)
    units = _ORDER[start : end + 1]
    pattern = "([+-]?)" + "".join(
        (_BETWEEN[unit] if place else "") + part
        for place, (unit, part) in enumerate(zip(units, _PARTS[start : end + 1], strict=True))
    )
    found = re.fullmatch(pattern, text)
    if found is None or (start < 2) != (end < 2):
        raise Refusal(_NO_NUMBER, node)
    turn = -1 if found[1] == "-" else 1
    parts = [_of_unit(node, Decimal(part), unit) for unit, part in zip(units, found.groups()[1:], strict=True)]
    months, days, micros = (turn * sum(part[place] for part in parts) for place in range(3))
    return months, days, micros
