"""The traits that a plan declares for the rows of each exit, checked against the rows."""

from __future__ import annotations

from collections import Counter, defaultdict

import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.order import comparable, join_bytes
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes
from rowkind.service.physical.graph import Exit
from rowkind.service.physical.node import PhysicalSink


class Traits:
    """Collector of the rows of each exit, which checks their traits after every batch."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], Counter[bytes]] = defaultdict(Counter)
        self._ways: dict[tuple[str, int], Exit] = {}

    def watch(self, way: Exit, batch: Batch) -> None:
        """Collect one batch of an exit, and check the kinds of its changes."""
        mode, changes = way.traits.mode, batch.changes
        kinds = set(changes.kind.tolist())
        if mode == "append":
            assert kinds <= {RowKind.INSERT}, f"{way.node} retracts rows"
        if mode == "upsert":
            assert RowKind.UPDATE_BEFORE not in kinds, f"{way.node} emits -U"
        if way.node.startswith("scan_") and mode != "append":
            # A table's changelog may be inexact; its consumer handles that.
            return
        salt = way.calc.key.salt
        # Changes that were pre-aggregated, copied, or netted by the sink's key are not a multiset of signed rows.
        if way.calc.partial is None and way.nets is None and (salt is None or salt.deal != "copies"):
            self._ways[way.node, way.to] = way
            rows = self._rows[way.node, way.to]
            for payload, weight in zip(changes.payload.to_pylist(), changes.weight.tolist(), strict=True):
                rows[payload] += weight

    def check(self) -> None:
        """Check after a batch that no row has a negative count and that unique keys are unique."""
        for name, way in self._ways.items():
            assert all(count >= 0 for count in self._rows[name].values()), f"{way.node} retracts an unknown row"
            payloads = list(self._rows[name].elements())
            known = set(way.calc.output.names)
            for key in way.traits.unique_keys:
                if known.issuperset(key):
                    values = key_values(way, payloads, key)
                    assert len(set(values)) == len(values), f"{way.node}: {key} is not unique"


def key_values(way: Exit, payloads: list[bytes], key: tuple[str, ...]) -> list[bytes]:
    """Return the key of each row as bytes, which are equal if the keys are equal."""
    rows = codec.read(way.calc.output, pa.array(payloads, pa.binary()))
    if not key:
        return [b""] * len(payloads)
    values: list[bytes] = join_bytes([comparable(rows.column(column)) for column in key]).to_pylist()
    return values


class SinkOrder:
    """Check of the order of changes under each key of a sink: a row exists before it is replaced or deleted.

    Only unique keys are checked, because the key of a retract topic need not be unique.
    """

    def __init__(self, sink: PhysicalSink) -> None:
        self._sink = sink
        self._unique = any(set(key) <= set(sink.key) for key in sink.input.traits.unique_keys)
        self._live: dict[bytes, bytes] = {}

    def check(self, changes: Changes) -> None:
        """Check one batch, in the order in which it is written."""
        if not self._unique or not self._sink.key or self._sink.mode == "append":
            return
        columns = zip(changes.kind.tolist(), changes.key.to_pylist(), changes.payload.to_pylist(), strict=True)
        for kind, key, payload in columns:
            match kind:
                case RowKind.INSERT:
                    assert key not in self._live or self._sink.mode == "upsert", "an inserted row is new"
                    self._live[key] = payload
                case RowKind.UPDATE_AFTER:
                    self._live[key] = payload
                case RowKind.UPDATE_BEFORE | RowKind.DELETE if self._sink.mode == "retract":
                    assert self._live.pop(key, None) == payload, "a retraction has the row that was there"
                case _:
                    self._live.pop(key, None)
