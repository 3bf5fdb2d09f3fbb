"""Digests of what plan nodes compute, independent of names. A graph merges nodes with equal digests.

A column is identified by its position in the concatenated columns of all inputs. A node's own calc is omitted, because
each consumer has its own calc.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import fields
from typing import Any

from rowkind.avro.schema import Field, Record, Type
from rowkind.service.physical.aggregation import Aggregation
from rowkind.service.physical.calc import ARRIVAL
from rowkind.service.physical.digests import AS_NAMED, ColumnTexts, Walk
from rowkind.service.physical.expression import Expand, Expression
from rowkind.service.physical.matching import DefinedVariable
from rowkind.service.physical.memoized import memoized
from rowkind.service.physical.node import PhysicalNode, PhysicalScan, PhysicalUnion
from rowkind.service.physical.operators import RankCondition
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.physical.tree import inputs


def computes(node: PhysicalNode, *, ttl: bool = True) -> str:
    """Return a digest of a node's computation. The digest does not depend on the names in the SQL.

    If `ttl` is false, nodes that differ only in TTLs have the same digest.
    """
    return _with_ttl(node) if ttl else _without_ttl(node)


@memoized
def _with_ttl(node: PhysicalNode) -> str:
    return _digest(node, ttl=True)


@memoized
def _without_ttl(node: PhysicalNode) -> str:
    return _digest(node, ttl=False)


def _digest(node: PhysicalNode, *, ttl: bool) -> str:
    walk = _PhysicalWalk(ttl=ttl)
    if isinstance(node, PhysicalScan):
        return f"scan {walk.value(node.source, {})}"
    below = inputs(node)
    names = _numbered(*(each.calc.output for each in below))
    parts = [(computes(each, ttl=ttl), walk.calc(each)) for each in below]
    return hashlib.sha256(f"{walk.fields(node, names)} of {parts}".encode()).hexdigest()


class _PhysicalWalk(Walk):
    """A walk over physical nodes. `ttl` says whether TTLs are part of the text."""

    def __init__(self, *, ttl: bool) -> None:
        self._ttl = ttl

    def calc(self, node: PhysicalNode) -> str:
        """Return text for the computation that a node's calc does for the consumer."""
        if isinstance(node, PhysicalUnion):
            return ""
        calc, expands = node.calc, []
        # A table's columns have the same names for every consumer, regardless of the columns that the consumer reads.
        names: ColumnTexts = AS_NAMED if isinstance(node, PhysicalScan) else {**_numbered(calc.input), ARRIVAL: ARRIVAL}
        first = names
        for each in calc.expands:
            expands.append(self.value(each, names))
            names = _numbered(each.output)
        own = {
            "expands": str(expands),
            "partial": self.value(calc.partial, _numbered(calc.output)),
            "replaced_by": self.field(calc.replaced_by, "column", first),
            "delete_time": self.field(calc.delete_time, "column", first),
        }
        return self.fields(calc, names, own)

    def value(self, value: Any, names: ColumnTexts) -> str:
        """Return a value as text, with its columns replaced by the texts in `names`."""
        known = None
        match value:
            case SourceTable():
                # The job declares each table only once, but a query may treat an exact table as not exact.
                return f"{value.table} {value.exact}"
            case Record():
                return str([self.value(each.type, names) for each in value.fields])
            case Type() | Field():
                kept = [(each.name, getattr(value, each.name)) for each in fields(value)]
                named = isinstance(value, Type)
                return str([self.value(each, names) for name, each in kept if not named or name != "name"])
            case Expression():
                known = {"sql": _renamed(value.sql, names)}
            case Expand():
                known = {"condition": self.value(value.condition, _numbered(value.output))}
            case Aggregation():
                names, known = _numbered(value.input), {"ending": self.value(value.ending, _numbered(value.output))}
            case RankCondition():
                names = {**names, **_numbered(value.numbers, sign="%")}
            case DefinedVariable():
                calls = {each.name: f"%{number}" for number, each in enumerate(value.calls)}
                known = {"condition": self.value(value.condition, {**names, **calls})}
            case _:
                return super().value(value, names)
        return self.fields(value, names, known)

    def counts(self, name: str, role: str) -> bool:
        """Return whether a field is part of the text."""
        return super().counts(name, role) and (self._ttl or name != "ttl_ms")


_TOKEN = re.compile(r"""'(?:[^']|'')*'|"((?:[^"]|"")*)\"""")


def _renamed(sql: str, names: ColumnTexts) -> str:
    """Rename the columns in DuckDB SQL, in which all column names are quoted."""

    def other(token: re.Match[str]) -> str:
        if token[1] is None:
            return token[0]
        name = token[1].replace('""', '"')
        return f'"{names.get(name, name)}"'

    return _TOKEN.sub(other, sql)


def _numbered(*records: Record, sign: str = "$") -> ColumnTexts:
    # The facts of a NOT IN are inputs too, and repeat columns of the right side.
    names = dict.fromkeys(name for record in records for name in record.names)
    return {name: f"{sign}{number}" for number, name in enumerate(names)}
