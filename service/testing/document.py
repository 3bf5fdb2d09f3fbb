"""The parts of a file of tests: mappings, lists and rows, each with its line; and all problems in them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from rowkind.avro.schema import Record
from rowkind.service.job.errors import Problem
from rowkind.service.plan.sql.scope import near
from rowkind.service.testing.suite import YamlPath

_JSON_KINDS = ("boolean", "int", "long", "float", "double", "array", "map", "record")
"""Kinds of types whose values in CSV are written as JSON."""

_Node = TypeVar("_Node")
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class YamlPlace:
    """A position in the document."""

    line: int
    path: YamlPath = ()

    def at(self, step: str | int, line: int) -> YamlPlace:
        """Return the position of a member or an entry."""
        return YamlPlace(line, (*self.path, step))


class WrongPartError(Exception):
    """A part of the document is not valid. Its problem has been recorded."""


class SuiteDocument:
    """Reads the parts of a document, and collects all problems."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def rows(
        self, node: Any, place: YamlPlace, record: Record, *, empty: bool
    ) -> Iterator[tuple[dict[str, Any], YamlPlace]]:
        """Yield the rows of a list of mappings or of CSV. `empty`: an empty CSV cell is NULL, and not omitted."""
        if isinstance(node, str):
            lines = csv.reader(io.StringIO(node.strip("\n")), skipinitialspace=True)
            names = [name.strip() for name in next(lines, [])]
            for cells in lines:
                at = place.at(lines.line_num - 2, place.line + lines.line_num)
                if len(cells) != len(names):
                    self.wrong(at, f"the line has {len(cells)} cells, but the header has {len(names)}")
                    continue
                values = zip(names, (cell.strip() for cell in cells), strict=True)
                yield {name: _cell(record, name, text) for name, text in values if text or empty}, at
            return
        for each, at in self.entries(node, place):
            if isinstance(each, Mapping):
                yield {str(name): _plain(value) for name, value in each.items()}, at
            else:
                self.wrong(at, f"found {each!r}: expected a row, as {{column: value}}")

    def members(
        self, node: Any, place: YamlPlace, known: tuple[str, ...], unknown: str = "unknown setting"
    ) -> Iterator[tuple[str, Any, YamlPlace]]:
        """Yield the entries of a mapping whose names are known, each with its value and place."""
        if not isinstance(node, CommentedMap):
            raise self.error(place, f"expected a mapping of {', '.join(known)}")
        for name, value in node.items():
            # A merged member has no line of its own.
            at = place.at(name, (node.lc.data or {}).get(name, [node.lc.line])[0] + 1)
            if name in known:
                yield name, value, at
            else:
                self.wrong(at, f"{unknown} {name!r}{near(str(name), known)}")

    def entries(self, node: Any, place: YamlPlace) -> Iterator[tuple[Any, YamlPlace]]:
        """Yield the entries of a list, each with its place."""
        if not isinstance(node, CommentedSeq):
            raise self.error(place, "expected a list")
        for number, each in enumerate(node):
            yield each, place.at(number, node.lc.item(number)[0] + 1)

    def attempt(self, read: Callable[[_Node, YamlPlace], _Read], node: _Node, place: YamlPlace) -> _Read | None:
        """Return what `read` returns, or None if it has found a problem."""
        try:
            return read(node, place)
        except WrongPartError:
            return None

    def wrong(self, place: YamlPlace, text: str) -> None:
        """Record a problem."""
        self.problems.append(Problem(place.line, ".".join(map(str, place.path)), text))

    def error(self, place: YamlPlace, text: str) -> WrongPartError:
        """Record a problem, and return the exception that ends the reading of this part."""
        self.wrong(place, text)
        return WrongPartError()


def _cell(record: Record, name: str, text: str) -> Any:
    """Return the value of a cell of CSV."""
    if not text:
        return None
    if name in record.names and record.type(name).kind in _JSON_KINDS and record.type(name).logical is None:
        try:
            return json.loads(text)
        except ValueError:
            return text  # The check of the row reports the value.
    return text


def _plain(value: Any) -> Any:
    """Return a value of ruamel as a plain value."""
    match value:
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case str():
            return str(value)
        case list():
            return [_plain(each) for each in value]
        case bool() | None:
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case _:
            return value
