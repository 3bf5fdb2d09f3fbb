"""Write a job file as YAML with comments, in the layout that a person would use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_./][^\n\t]*|\d+[a-z]")
_NOT_PLAIN = re.compile(r":(?= |$)| #| $")
_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
_WIDTH = 116


@dataclass(frozen=True)
class Commented:
    """A value with comments above it, or only comments if the value is None."""

    comments: Sequence[str]
    value: Any = None


def document(values: Mapping[str, Any]) -> str:
    """Return the text of a job file: mappings with one entry per line, multi-line text as blocks, lists on one line."""
    parts: list[str] = []
    for name, value in values.items():
        blank = isinstance(value, Mapping) and name in ("tables", "views", "sinks")
        parts += ["", *_entry(name, value, "")] if blank else _entry(name, value, "")
    return "\n".join(parts) + "\n"


def _entry(name: str, value: Any, margin: str) -> Iterator[str]:
    if isinstance(value, Commented):
        for comment in value.comments:
            for line in comment.split("\n"):
                yield f"{margin}# {line}".rstrip()
        if value.value is None:
            return
        value = value.value
    head = f"{margin}{scalar(name)}:"
    match value:
        case Mapping():
            yield head
            for inner, each in value.items():
                yield from _entry(inner, each, f"{margin}  ")
        case list() | tuple():
            yield f"{head} [{', '.join(value)}]"
        case str() if "\n" in value or (len(value) + len(head) > _WIDTH):
            yield f"{head} |-"
            for line in value.split("\n"):
                yield f"{margin}  {line}".rstrip()
        case _:
            yield f"{head} {scalar(value)}"


def scalar(value: Any) -> str:
    """Return a value on one line, in quotation marks if YAML would otherwise parse it as something else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    plain = _PLAIN.fullmatch(value) is not None and _NOT_PLAIN.search(value) is None and value.lower() not in _WORDS
    return value if plain else json.dumps(value, ensure_ascii=False)
