"""A logical plan as text, one line per node, and `example`, which shows a pass's changes in docstrings of passes."""

from __future__ import annotations

import json
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import singledispatch
from itertools import groupby, pairwise, takewhile
from pathlib import Path
from typing import Any

from sqlglot import exp

from rowkind.operators.field_roles import ROLE
from rowkind.operators.rank.ranking import Ranking
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.physical.clocks import Clock, Closing, ColumnTime
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.plan.calls import EqualKey
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.phases import PASSES, Pass
from rowkind.service.plan.pipeline import logical
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.clock_conditions import ClockCondition
from rowkind.service.plan.scalar.scalars import show
from rowkind.service.plan.tree import inputs, walk
from tests.plan.cases import Case

Facts = dict[str, str]
"""The non-empty fields of a node by name: `kind`, or `left.layout` for a field of an input."""

_WIDTH = 108
_BARE = ("source", "path", "kind", "function", "ranking", "conjuncts", "outputs")
"""Fields of nodes that are shown without their names, in this order."""

_NEVER = {"type", "types"}
_IF_CHANGED = {"used", "sought", "defines"}
"""Required fields that are long and shown only if a pass changes them."""

_EMPTY = (None, (), {}, "", False)


def example(of: Pass, sql: str, sink: str = "retract", **settings: Any) -> None:
    """Print the part of a query's plan that a pass changes, before and after the pass, or the message of its refusal.

    Earlier passes have been applied. The tables are those of the cases; `sink` and `settings` are as in the head of a
    case, and `code` is the text of the module `dice`. A field is shown if it is required or changed.
    """
    query = _job_query(sql, sink, settings)
    for earlier in takewhile(lambda each: each is not of, PASSES):
        query = earlier(query)
    try:
        after = of(query).root
    except Refusal as refusal:
        print("\n".join(textwrap.wrap(f"Refusal: {refusal.text}", _WIDTH)))
        return
    old, new = _changed(query.root, after)
    assert old != new, f"{of.__name__} changes nothing in {sql}"
    shown = _required() | _differing(old, new)
    before_lines, after_lines = list(_lines(old, new, shown)), list(_lines(new, old, shown))
    for each in (*_short(before_lines, after_lines), "becomes", *_short(after_lines, before_lines)):
        print("\n".join(textwrap.wrap(each, _WIDTH, subsequent_indent=_indent(each) + "    ", break_long_words=False)))


def _job_query(sql: str, sink: str, settings: Mapping[str, Any]) -> Query:
    with tempfile.TemporaryDirectory() as folder:
        if "code" in settings:
            (Path(folder) / "dice.py").write_text(settings["code"])
            settings = {**settings, "code": "."}
        head = "\n".join(["", f"sink: {sink}", *(f"{name}: {json.dumps(of)}" for name, of in settings.items())])
        return logical(Case(Path(), head, textwrap.dedent(sql).strip(), "").job(Path(folder)), "result")


def _changed(old: LogicalNode, new: LogicalNode) -> tuple[LogicalNode, LogicalNode]:
    """Return the smallest different parts of two trees, without equal nodes above them."""
    if type(old) is type(new) and facts(old) == facts(new):
        differing = [pair for pair in zip(inputs(old), inputs(new), strict=True) if pair[0] != pair[1]]
        if len(differing) == 1:
            return _changed(*differing[0])
    return old, new


def _lines(node: LogicalNode, other: LogicalNode, shown: AbstractSet[str], indent: str = "") -> Iterator[str]:
    """Yield the lines of a tree; of a part that is also in the other tree, only the first line."""
    yield indent + line(node, shown)
    if all(node != each for each in walk(other)):
        for below in inputs(node):
            yield from _lines(below, other, shown, f"{indent}  ")


def _short(lines: list[str], other: list[str]) -> Iterator[str]:
    """Yield the lines, with one … for several consecutive levels that are equal in both trees."""
    yield from lines[:1]
    for is_same, run in groupby(pairwise([*lines[1:], ""]), lambda pair: pair[0] in other and _is_above(*pair)):
        of = [line for line, _ in run]
        yield from [_indent(of[0]) + "…"] if is_same and len(of) > 1 else of


def _is_above(line: str, below: str) -> bool:
    return len(_indent(line)) < len(_indent(below))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def line(node: LogicalNode, shown: AbstractSet[str]) -> str:
    """Return a node without its inputs: the name of its class and the `shown` fields, lists last."""
    name = _name(node)
    values = {field: value for field, value in facts(node).items() if f"{name}.{field}" in shown}
    bare = dict.fromkeys(values.pop(field).removeprefix("[").removesuffix("]") for field in _BARE if field in values)
    return " ".join([name, *bare, *_named(dict(sorted(values.items(), key=lambda each: each[1][0] == "[")))])


def _named(values: Facts) -> list[str]:
    return [name if value == "True" else f"{name}={value}" for name, value in values.items()]


def facts(node: LogicalNode) -> Facts:
    """Return the fields of a node and of its inputs, as text."""
    values = dict(_facts(node))
    for field in fields(node):
        below = getattr(node, field.name)
        if isinstance(below, LogicalInput):
            values |= {f"{field.name}.{name}": value for name, value in _facts(below)}
    return values


def _facts(of: Any) -> Iterator[tuple[str, str]]:
    for field in fields(of):
        value = getattr(of, field.name)
        if (
            field.metadata.get(ROLE) not in ("aside", "child")
            and field.name not in _NEVER
            and value != _default(field)
            and value not in _EMPTY
        ):
            yield field.name, text(value)


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _required() -> set[str]:
    """Return the fields without a default, of all node classes."""
    return {
        f"{_name(of)}.{field.name}"
        for of in _classes(LogicalNode)
        if is_dataclass(of)
        for field in fields(of)
        if (_default(field) is MISSING or field.name == "keys") and field.name not in _IF_CHANGED
    }


def _classes(of: type) -> Iterator[type]:
    for below in of.__subclasses__():
        yield below
        yield from _classes(below)


def _differing(old: LogicalNode, new: LogicalNode) -> set[str]:
    """Return the fields whose values differ between the nodes of two trees."""
    before, after = (
        Counter((f"{_name(node)}.{name}", value) for node in walk(root) for name, value in facts(node).items())
        for root in (old, new)
    )
    return {name for name, _ in (before - after) + (after - before)}


def _name(node: LogicalNode | type) -> str:
    return (node if isinstance(node, type) else type(node)).__name__.removeprefix("Logical")


@singledispatch
def text(value: Any) -> str:
    """Return a short text for the value of a field."""
    if not is_dataclass(value):
        return str(value)
    values = dict(_facts(value))
    if "function" in values:
        arguments = values.pop("arguments", "[]")[1:-1]
        return " ".join([f"{values.pop('function')}({arguments})", *_named(values)])
    return f"({', '.join(_named(values))})"


@text.register
def _(value: exp.Expr) -> str:
    return show(value).replace("`", "")


@text.register
def _(value: ClockCondition) -> str:
    return f"{text(value.this)}{_later(value.args['later'])} {value.args['operator']} {value.args['clock']}"


def _later(microseconds: int) -> str:
    parts = list[str]()
    for unit, length in {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "us": 1}.items():
        count, microseconds = divmod(microseconds, length)
        parts += [f"{count}{unit}"] if count else []
    return f" + {' '.join(parts)}" if parts else ""


@text.register
def _(value: tuple) -> str:  # type: ignore[type-arg]  # singledispatch needs a class
    if not all(isinstance(each, exp.Expr) for each in value):
        return f"[{', '.join(map(text, value))}]"
    operands = (f"({text(each)})" if isinstance(each, exp.Or) and value[1:] else text(each) for each in value)
    return f"[{' AND '.join(operands)}]"


@text.register
def _(value: Mapping) -> str:  # type: ignore[type-arg]  # singledispatch needs a class
    computed = [f"{name}: {text(each)}" for name, each in value.items() if text(each) != name]
    return f"[{', '.join(['…'] * (len(computed) < len(value)) + computed)}]"


@text.register
def _(value: EqualKey) -> str:
    return f"{show(value.left)} {'IS NOT DISTINCT FROM' if value.null_safe else '='} {show(value.right)}"


@text.register
def _(value: OrderColumn) -> str:
    return f"{value.column or 'PROCTIME()'}{' DESC' if value.descending else ''}"


@text.register
def _(value: Ranking) -> str:
    strategy = f" strategy={value.strategy}" if value.strategy != "retract" else ""
    settled = f" settled={value.settled}" if value.settled is not None else ""
    return f"{value.function} {value.first}..{value.last or ''}{strategy}{settled}"


@text.register
def _(value: Clock) -> str:
    return "PROCTIME()" if value.processing else value.name


@text.register
def _(value: ColumnTime) -> str:
    return value.column + _later(value.later_us)


@text.register
def _(value: Closing) -> str:
    kept = "" if value.kept == value.late else f", kept {'indefinitely' if value.kept is None else text(value.kept)}"
    return f"({text(value.clock)} passes {text(value.late)}{kept})"


@text.register
def _(value: SourceTable) -> str:
    return value.table
