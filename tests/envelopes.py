"""Run jobs over Debezium JSON in this process: records pass the reader's decoder, rows pass the operators."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.avro.json_rows import decode
from rowkind.avro.registry import FolderRegistry
from rowkind.avro.same_rows import SameRows
from rowkind.service.job.load import load
from rowkind.service.kafka.bad_updates import decoder_of
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.kafka.record import Records
from rowkind.service.physical.node import PhysicalScan
from rowkind.service.plan.pipeline import plan, source_table
from rowkind.service.query.memory import Fold, MemoryEngine
from tests.kafka.tables import pass_on

Row = Mapping[str, Any]


def envelope(op: str, before: Row | None = None, after: Row | None = None) -> bytes:
    """Return an envelope as Debezium writes it without schemas."""
    return json.dumps({"before": before, "after": after, "op": op, "source": {"lsn": 1}}).encode()


class DebeziumJob:
    """A job with one sink over the table `t`, run batch by batch; `letters` has the dead letters."""

    def __init__(self, folder: Path, sql: str, table: Mapping[str, Any], **sink: Any) -> None:
        named = {"format": "json", "mode": "debezium"} | dict(table)
        document = {
            "job": "envelopes",
            "dead_letters": {"topic": "letters"},
            "tables": {"t": named},
            "sinks": {"o": {"mode": "retract", "sql": sql} | sink},
        }
        (folder / "job.yaml").write_text(json.dumps(document))
        job = load(folder / "job.yaml")
        self.sink = plan(job, "o")
        source = source_table(job, "t")
        scan = PhysicalScan("scan", source, pass_on(source.declared, source.primary_key))
        self._decoder = decoder_of(scan, FolderRegistry(folder), tolerate=True)
        self.broken: list[Any] = []
        self.letters: list[DeadLetter] = []
        self._engine = MemoryEngine(self.sink, broken=self.broken.append)
        self._fold = Fold(keyed=self.sink.mode == "upsert", alike=SameRows(self.sink.value))
        self._batches = self._offset = 0

    def batch(self, *records: tuple[bytes | None, bytes | None]) -> None:
        """Process one batch of records (key and value) of partition 0."""
        count = len(records)
        keys, values = (pa.array([each[at] for each in records], pa.binary()) for at in (0, 1))
        offsets = np.arange(self._offset, self._offset + count)
        none = np.zeros(count, np.int64)
        decoded = self._decoder.decode(Records("t", none, offsets, values, keys, None, none))
        self.letters += decoded.letters
        self._offset, self._batches = self._offset + count, self._batches + 1
        truncated = {} if decoded.truncation is None else {"t": decoded.truncation}
        self._fold.apply(self._engine.batch({"t": decoded.rows}, self._batches, truncated=truncated)["o"])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the result, sorted."""
        return sorted(decode(self.sink.value, pa.array(self._fold.payloads, pa.binary())), key=str)

    def run(self, records: Sequence[tuple[bytes | None, bytes | None]], size: int) -> list[dict[str, Any]]:
        """Return the result after all of these records, in batches of `size`."""
        for start in range(0, len(records), size):
            self.batch(*records[start : start + size])
        return self.rows
