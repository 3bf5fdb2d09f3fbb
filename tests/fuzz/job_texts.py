"""Job files with errors: values of wrong types, settings moved, duplicated or removed, broken YAML."""

from __future__ import annotations

import io
import random
from typing import Any

from ruamel.yaml import YAML

_VALUES: tuple[Any, ...] = (
    None,
    "",
    "x",
    "a b",
    "é",
    0,
    -1,
    1.5,
    True,
    [],
    {},
    [1],
    ["order_id"],
    {"x": "y"},
    "append",
    "upsert",
    "30d",
    "-1s",
    "${NOBODY}",
    "${",
    "SELECT",
    "SELECT 1",
    "BIGINT NOT NULL",
    "ARRAY<",
    "2026-01-01",
    "\0",
    "1" * 300,
    {"file": "nowhere"},
    float("inf"),
    float("nan"),
    10**30,
    [[]],
    {1: 2},
    {"": ""},
)  # fmt: skip -- a list of words
_KEYS = ("topic", "mode", "key", "sql", "columns", "primary_key", "ttl", "views", "sinks", "tables", "x", "", 1, None)


def changed(rng: random.Random, text: str) -> str:
    """Return the job with a few of its settings changed; the text is still YAML."""
    document = YAML(typ="safe").load(text)
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = list(_places(document))
        within, key = rng.choice(places)
        match rng.randrange(4):
            case 0:
                del within[key]
            case 1:
                within[key] = rng.choice(_VALUES)
            case 2 if isinstance(within, dict):
                within[rng.choice(_KEYS)] = rng.choice(_VALUES)
            case 3 if isinstance(within, dict):
                other, named = rng.choice(places)
                if named in other:
                    # A copy, so that no container contains itself.
                    within[rng.choice(_KEYS)] = _copied(other[named])
    stream = io.StringIO()
    YAML(typ="safe").dump(document, stream)
    return stream.getvalue()


def torn(rng: random.Random, text: str) -> str:
    """Return the text with lines and letters removed, duplicated, moved or replaced; it may no longer be YAML."""
    lines = text.splitlines(keepends=True)
    for _ in range(rng.choice((1, 2, 4))):
        at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(5):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines.insert(to, lines[at])
            case 2:
                lines[at] = " " * rng.randrange(8) + lines[at].lstrip()
            case 3:
                spot = rng.randrange(len(lines[at]))
                with_ = rng.choice([*":{}[]-#&*!|>'\"%@`,?\t\0 ", "<<: *x", "\ud800", "${", "€"])
                lines[at] = lines[at][:spot] + with_ + lines[at][spot + 1 :]
            case 4:
                lines[at] = lines[at][: rng.randrange(len(lines[at]))] + lines[to][rng.randrange(len(lines[to])) :]
    return "".join(lines)


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Return every container with each of its keys."""
    found: list[tuple[Any, Any]] = []
    todo = [document]
    while todo:
        each = todo.pop()
        keys = list(each) if isinstance(each, dict) else list(range(len(each))) if isinstance(each, list) else []
        found += [(each, key) for key in keys]
        todo += [each[key] for key in keys]
    return found or [({}, None)]


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value
