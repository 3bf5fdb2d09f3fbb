"""A plan as an outline: one line per step, below it one line per state of the step, then its inputs, indented.

    result: columns order_id BIGINT NOT NULL; retract
      anti_join_1: on o.order_id = p.order_id; retract; unique (order_id); → unmoved
        keeps left: orders; one row per key; by arrival; ttl 30d
        keeps right: payments; unique key (p.payment_id); by arrival; ttl 12h
        scan_o: orders; reads order_id; retract; unique (o.order_id); no -U needed; → shuffled by o.order_id
        scan_p: payments; reads payment_id, order_id; no columns; drops NULL keys; retract; unique (p.payment_id)
              → shuffled by p.order_id
      advice: result sink without key

The outline is written from the JSON document of `rowkind explain` and has every value of the document. It omits a value
only if the value follows from others: from the rest of the document, or from the tables of the job.
"""

from __future__ import annotations

import bisect
import itertools
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Node = Mapping[str, Any]
"""An object of the document: a sink, a step or a state."""
_WIDTH = 120
_INDENT = "  "
_SIDED = ("join", "semi_join", "anti_join", "mark_join", "asof_join", "lookup")
_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_SEPARATE = ("name", "inputs", "state", "goes", "advice")
"""Keys that are not a phrase in the line of a step."""
_DOES = {
    "kind": "",
    "same_as": "same as",
    "table": "",
    "reads": "reads",
    "join": "",
    "on": "on",
    "condition": "and",
    "function": "",
    "first": "from",
    "last": "to",
    "of": "",
    "layout": "",
    "calls": "",
    "group_by": "group by",
    "partition_by": "partition by",
    "order_by": "order by",
    "about": "",
    "code": "",
    "how": "",
}
_CALC = {
    "filter": "where",
    "filter_deletes": "filter deletes",
    "expands": "expands",
    "computes": "computes",
    "columns": "columns",
    "digested": "row digest",
    "drops_null_keys": "drops NULL keys",
}
_EMITS = {
    "mode": "",
    "key": "",
    "unique_keys": "unique",
    "upsert_key": "upsert key",
    "needs_old_rows": "-U needed",
    "refreshes": "refreshes",
    "partition_key": "partition key",
    "stage": "stage",
}
_WORDS = {**_DOES, "": "", **_CALC, **_EMITS, "goes": ""}
"""The words before values, in the order of a line: a step's operation, other keys by name, its output, its rows."""
_ORDER = list(_WORDS)
_ENDS = [_ORDER.index(""), _ORDER.index("drops_null_keys"), _ORDER.index("stage")]
"""The places where groups of phrases end."""


def outline(sink: Node, tables: Mapping[str, Node]) -> str:
    """Return the plan of a sink as an outline; `tables` are those of the job file."""
    return "\n".join(_Outline(tables).lines(sink, {}, 0))


@dataclass
class _Outline:
    """Writer of the steps of one plan."""

    tables: Mapping[str, Node]
    stages: dict[str, int | None] = field(default_factory=dict)
    """The stages of the steps so far; a step that equals an earlier one runs in its stage."""

    def lines(self, step: Node, consumer: Node, depth: int, place: int = 0) -> Iterator[str]:
        """Yield the lines of a step and of all steps below it; the step is its consumer's input at this place."""
        types = self._types(step)
        own = {key: value for key, value in step.items() if key not in _SEPARATE}
        own |= {key: _untyped(step[key], known) for key, known in types.items() if key in step and consumer}
        phrases = dict(_phrases(own, self._expected(step, consumer, types["columns"])))
        if consumer:
            phrases["goes"] = f"→ {_way(step.get('goes', {}), consumer, place)}"
        groups = itertools.groupby(phrases, lambda key: bisect.bisect_left(_ENDS, _place(key)[0]))
        yield from _packed(depth, step["name"], ("; ".join(phrases[key] for key in group) for _, group in groups))
        for state in step.get("state", ()):
            yield from _packed(depth + 1, f"keeps {state['name']}", _state(state))
        self.stages.setdefault(step["name"], step.get("stage"))
        for number, each in enumerate(step.get("inputs", ())):
            yield from self.lines(each, step, depth + 1, number)
        for each in step.get("advice", ()):
            yield f"{_INDENT * (depth + 1)}advice: {_joined(' ', each)}"

    def _types(self, step: Node) -> dict[str, Mapping[str, str | None]]:
        """Return the column types that are known from the inputs, for a step's columns and for those it reads."""
        declared = self.tables.get(step.get("table", ""), {}).get("columns", {})
        below = [each for source in step.get("inputs", ()) for each in source.get("columns", ())]
        known = [*below, *_aliased(step)]
        return {"columns": {each["name"]: each.get("type") for each in known}, "reads": declared}

    def _expected(self, step: Node, consumer: Node, types: Mapping[str, str | None]) -> dict[str, Any]:
        """Return the values that follow from others, by key; the line omits them."""
        name, inputs = step["name"], step.get("inputs", ())
        if not consumer:
            return {"kind": "sink", "topic": name, "delivery": "exactly_once"}
        kind = name.partition("_")[0] if name.startswith("scan_") else name.rpartition("_")[0]
        expected: dict[str, Any] = {
            "kind": kind,
            "columns": _untyped(_passed_on(step, consumer), types),
            "needs_old_rows": step.get("mode") != "upsert",
            "upsert_key": next(iter(step.get("unique_keys", ())), None) if step.get("mode") != "append" else None,
        }
        if kind == "scan":
            return expected | self._scanned(step)
        if "same_as" in step:
            return expected | {"stage": self.stages.get(name)}
        if kind != "union":
            expected["stage"] = max(map(_stage_after, inputs), default=1)
            expected["partition_key"] = inputs[0].get("goes", {}).get("by") if inputs else None
        if kind in ("semi_join", "anti_join"):
            expected["join"] = kind.removesuffix("_join")
        if kind in ("rank", "deduplicate"):
            expected |= {"first": 1, "ties": "earliest first"}
        return expected

    def _scanned(self, step: Node) -> dict[str, Any]:
        """Return the values of a scan that follow from its name and its table."""
        name = step.get("table", "")
        table = self.tables.get(name, {})
        key, watermark = table.get("primary_key"), None
        if "watermark" in table:
            delay = table["watermark"]["delay"]
            watermark = {"column": table["watermark"]["column"], "delay_ms": int(delay[:-1]) * _UNITS[delay[-1]]}
            watermark |= {"idle_ms": 30_000, "late": "drop", "allowed_lateness_ms": 0}
        return {
            "alias": step["name"].removeprefix("scan_"),
            "topic": name,
            "table_mode": table.get("mode"),
            "primary_key": [key] if isinstance(key, str) else key,
            "exact": table.get("exact"),
            "watermark": watermark,
        }


def _passed_on(step: Node, consumer: Node) -> list[Node]:
    """Return the columns of a step that changes none: those of a sink directly above, or else of its inputs."""
    if consumer.get("kind") == "sink":
        return list(consumer.get("columns", ()))
    return [*_aliased(step), *(each for source in step.get("inputs", ()) for each in source.get("columns", ()))]


def _aliased(step: Node) -> list[Node]:
    """Return the columns that a scan reads, with the query's alias."""
    return [{**each, "name": f"{step.get('alias')}.{each['name']}"} for each in step.get("reads", ())]


def _untyped(columns: Iterable[Node], types: Mapping[str, str | None]) -> Sequence[Node]:
    """Return the columns without the types that are known."""
    typed = [{**each, "type": each.get("type", "without a type")} for each in columns]
    for each in typed:
        if types.get(each["name"]) == each["type"]:
            del each["type"]
    return typed


def _stage_after(step: Node) -> int:
    """Return the first stage in which an operator with this input can run."""
    if step.get("kind") == "union":
        return max(map(_stage_after, step.get("inputs", ())), default=1)
    same = step.get("goes", {}).get("how") == "same stage"
    return int(step.get("stage") or 0) + (0 if same else 1)


def _state(state: Node) -> Iterable[str]:
    """Return the phrases of a state."""
    kept = {key: value for key, value in state.items() if key not in ("name", "sub_key")}
    if "sub_key" in state:
        kept["layout"] = f"{state.get('layout')} {_tuples([state['sub_key']])}"
    return dict(_phrases(kept, {})).values()


def _way(goes: Node, consumer: Node, place: int) -> str:
    """Return how the rows of a step reach its consumer, as the input at this place."""
    expected = {"to": consumer["name"], "role": "input"}
    if consumer.get("kind") in _SIDED:
        expected["role"] = ("left", "right", *["fact"] * place)[place]
    elif consumer.get("kind") == "union":
        expected |= {key: consumer.get("goes", {}).get(key) for key in ("to", "role")}
    by = f" by {', '.join(goes['by'])}" if "by" in goes else ""
    rest = {key: value for key, value in goes.items() if key != "by"}
    return _joined(", ", {**rest, "how": f"{goes.get('how')}{by}"}, expected)


def _joined(separator: str, node: Node, expected: Node | None = None) -> str:
    return separator.join(dict(_phrases(node, expected or {})).values())


def _phrases(node: Node, expected: Node) -> Iterator[tuple[str, str]]:
    """Yield, by key, the values of an object that differ from the expected ones or are missing."""
    for key in sorted({*node, *expected}, key=_place):
        value = node.get(key)
        if _present(value) == _present(expected.get(key)):
            continue
        word = _WORDS.get(key, key.removesuffix("_ms").replace("_", " "))
        if value is True:
            yield key, word
        else:
            yield key, f"no {word or key}" if _present(value) is None else f"{word} {_text(key, value)}".strip()


def _present(value: Any) -> Any:
    """Return a value, or None for a value that the documents of cases omit."""
    return None if value is False or value in (None, [], {}) else value


def _place(key: str) -> tuple[int, str]:
    return _ORDER.index(key if key in _WORDS else ""), key


def _text(key: str, value: Any) -> str:
    if key.endswith("_ms"):
        unit = next(unit for unit, size in _UNITS.items() if value % size == 0)
        return f"{value // _UNITS[unit]}{unit}"
    match value:
        case list() if key in ("unique_keys", "key"):
            return _tuples(value if key == "unique_keys" else [value])
        case list():
            return ", ".join(_text(key, each) for each in value)
        case {"name": name, **rest} if len(rest) < 2:
            equals = "" if key in ("columns", "reads") else "= "
            return " ".join([name, *(f"{equals}{each}" for each in rest.values())])
        case dict() if key in ("computes", "define", "functions"):
            return ", ".join(f"{name} = {each}" for name, each in value.items())
        case dict():
            return _joined(" ", value)
    return str(value)


def _tuples(keys: Iterable[Iterable[str]]) -> str:
    return ", ".join(f"({', '.join(key)})" for key in keys)


def _packed(depth: int, first: str, texts: Iterable[str], separator: str = "; ") -> Iterator[str]:
    """Yield texts joined on lines, each text starting a new line if it does not fit."""
    margin = _INDENT * depth
    line, *rest = texts
    line = f"{margin}{first}: {line}"
    for text in rest:
        if len(line) + len(separator) + len(text) > _WIDTH:
            yield from _wrapped(line, margin)
            line = f"{margin}{3 * _INDENT}{text}"
        else:
            line += f"{separator}{text}"
    yield from _wrapped(line, margin)


def _wrapped(line: str, margin: str) -> list[str]:
    inner = f"{margin}{4 * _INDENT}"
    return textwrap.wrap(line, _WIDTH, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False)
