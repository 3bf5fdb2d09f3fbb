"""`rowkind test --update`: replace failed expectations in a file of tests with the rows that were found.

Only the lines of these expectations change. All other lines, with their comments, stay byte by byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

from rowkind.avro.schema import Record
from rowkind.avro.text_values import is_spelled
from rowkind.service.testing.suite import OP, ComparedRow, Expectation, YamlPath, op_key

Fixed = tuple[Expectation, Sequence[ComparedRow], Record]
"""An expectation, the rows that were found, and the columns of the sink or the table."""

_BARE = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[A-Za-z][A-Za-z0-9_-]*( [A-Za-z0-9_-]+)*", re.IGNORECASE)
"""Texts that need no quotes in YAML."""

_ALIAS = re.compile(r"[ \t]*\*[^\s,\]}]+")
"""A reference to a value with an anchor."""

_EXACT = re.compile(r"-?(0|[1-9]\d{0,11})(\.\d{1,6})?|\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d{1,6})?Z?)?")
"""Decimals, dates and timestamps that a YAML number or time represents exactly."""


def updated(text: str, fixed: Iterable[Fixed]) -> str:
    """Return the text of a file with new rows for these expectations.

    The rows have the columns that the expectation named before, or all columns if it named none.
    """
    root = YAML().compose(text)
    edits = []
    for expectation, rows, record in fixed:
        parent, key, value = _find(root, expectation.path)
        named = {name for row in expectation.rows or () for name in row}
        lines = [_row(row, record, named) for row in rows]
        begin = key.end_mark.index + 1
        end = max(begin, _end(text, begin, value))
        if parent.flow_style:
            edits.append((begin, end, f" [{', '.join(lines)}]"))
            continue
        line_end = text.find("\n", begin)
        comment = text[begin:line_end].lstrip().startswith("#")
        margin = "\n" + " " * (key.start_mark.column + 2)
        new = "".join(f"{margin}- {line}" for line in lines) or (f"{margin}[]" if comment else " []")
        begin = line_end if comment else begin
        edits.append((begin, max(begin, end), new))
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def _find(root: CollectionNode, path: YamlPath) -> tuple[CollectionNode, Node, Node]:
    """Return the mapping, the key and the value at a path, whose last step is a key."""
    found: list[tuple[CollectionNode, Node, Node]] = [(root, root, root)]
    for step in path:
        node = found[-1][-1]
        if isinstance(node, MappingNode):
            found.append(next((node, key, value) for key, value in node.value if key.value == str(step)))
        else:
            assert isinstance(node, CollectionNode), "a step leads into a mapping or a list"
            found.append((node, node, node.value[step]))
    return found[-1]


def _end(text: str, begin: int, value: Node) -> int:
    """Return the end of a value, without the empty lines and comments that follow it."""
    if isinstance(value, ScalarNode) and not value.value:
        return begin
    if value.start_mark.index < begin and (alias := _ALIAS.match(text, begin)) is not None:
        return alias.end()
    end = int(value.end_mark.index)
    if isinstance(value, CollectionNode) and value.flow_style:
        return end
    lines = text[begin:end].split("\n")
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return begin + len("\n".join(lines))


def _row(row: ComparedRow, record: Record, named: set[str]) -> str:
    """Return a row in YAML."""
    members = [f"{op_key(record)}: {row[OP]}"] if OP in row else []
    for name in record.names:
        if name in row and (not named or name in named):
            key = name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
            members.append(f"{key}: {_value(row[name], text=not is_spelled(record.type(name)))}")
    return f"{{{', '.join(members)}}}"


def _value(value: Any, *, text: bool) -> str:
    if isinstance(value, str) and (_BARE if text else _EXACT).fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)
