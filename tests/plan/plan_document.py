"""Generate docs/reference/plan-document.md: the keys of the JSON form of a plan, from their declarations.

`python -m tests.plan` writes the page, and a test compares it.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from rowkind.service.plan.explain import description, json_document, values
from rowkind.service.plan.operators import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "plan-document.md"
SECTIONS: Mapping[str, Sequence[type]] = {
    "The document": (json_document.DocumentKeys, json_document.QueryKeys),
    "Every step": (json_document.StepHead, json_document.StepTail, values.CalcValues, values.OutcomeValues),
    "Sinks": (values.SinkValues, json_document.SinkTail, values.Advice),
    "Tables": (values.ScanValues, values.ScanDetails, values.WatermarkValues),
    "Joins": (values.JoinValues, values.JoinDetails, values.LookupValues),
    "Aggregates": (values.AggregateValues, values.FactValues),
    "Ranks": (values.RankValues, values.RankDetails, values.NumberColumn),
    "Window functions and sessions": (values.OverValues, values.SessionValues),
    "Row patterns": (values.MatchValues, values.MatchDetails),
    "Other operators": (values.NormalizeDetails, values.TemporalFilterValues),
    "State": (json_document.StateHead, values.StateValues, json_document.StateTail, values.Closes),
    "Parts": (description.Way, json_document.SameAs, values.NamedColumn, values.NamedCall, values.ExpandValues),
}
_HEAD = """# The JSON form of a plan

`rowkind explain --format json` writes one document with these keys, for programs. A key stays as it is once it is
released; others may be added. Sentences (`title`, `reason`, `text`) may change with any release. This page is generated
from the declarations in `service/plan/explain`.

A step has the keys of *Every step* and of its own kind. A key marked with * is left out where it does not apply."""


def page() -> str:
    """Return the page."""
    parts = (f"## {title}\n\n" + "\n\n".join(map(_table, of)) for title, of in SECTIONS.items())
    return "\n\n".join([_HEAD, *parts]) + "\n"


def _table(of: type) -> str:
    rows = [
        f"| `{name}`{'*' * _optional(of, name)} | {_type(said)} | {said.__metadata__[0]} |" for name, said in keys(of)
    ]
    title = (of.__doc__ or "").strip().removesuffix(".")
    return "\n".join([f"### {title}\n", "| key | value | meaning |\n|---|---|---|", *rows])


def keys(of: type) -> Iterator[tuple[str, Any]]:
    """Yield the documented keys of a class with their types."""
    for name, said in values.documented(of).items():
        listed = (of, name) == (json_document.StepHead, "kind")
        yield name, Annotated[Literal[KINDS], said.__metadata__[0]] if listed else said


def choices(type_: Any) -> tuple[Any, ...]:
    """Return the values that a type lists, or nothing for any other type."""
    if get_origin(type_) is Literal:
        return get_args(type_)
    parts = [choices(each) for each in get_args(type_)] if get_origin(type_) in (Union, types.UnionType) else []
    found = tuple(value for part in parts for value in part)
    return (*found, None) if found and type(None) in get_args(type_) else found


def _optional(of: type, name: str) -> bool:
    return getattr(of, name, None) is values.ABSENT or name in _LEFT_OUT.get(of.__name__, ())


_LEFT_OUT: Mapping[str, Sequence[str]] = {
    "RankValues": ("numbers",),
    "RankDetails": ("condition", "bound", "settled"),
    "MatchValues": ("within",),
}
"""Optional keys without a default, because keys without one follow them."""


def _type(said: Any) -> str:
    of = said.__origin__
    if listed := choices(of):
        return ", ".join("null" if each is None else f"`{each}`" for each in listed)
    return _named(of)


def _named(of: Any) -> str:
    origin, args = get_origin(of), get_args(of)
    if origin is types.UnionType:
        return " or ".join(map(_named, args))
    if origin is None:
        return _NAMES.get(of, "object")
    if issubclass(origin, Mapping):
        return "object" if args[1] is Any else "object of texts"
    inner = args[0]
    return f"list of {'lists of texts' if get_origin(inner) is Sequence else 'texts' if inner is str else 'objects'}"


_NAMES: Mapping[Any, str] = {str: "text", int: "number", bool: "true or false", type(None): "null"}
