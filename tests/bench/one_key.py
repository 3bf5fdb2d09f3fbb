"""State and CPU of joins on one key, with and without stored intermediate results: `python -m tests.bench.one_key`.

Each table has 20,000 keys. Its rows are inserted in batches, one table after the other; then rows of every table are
updated. Each case runs twice: planned without the pass `reuse_join_state`, and with it. In memory, in one shard; CPU
time of this process.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rowkind.avro.codec import encode
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Rows
from rowkind.service.job.load import load
from rowkind.service.plan import pipeline
from rowkind.service.plan.passes.reuse_join_state import reuse_join_state
from rowkind.service.query.memory import MemoryEngine
from tests.bench.compare import page
from tests.bench.compare.page import Table

_JOB = """
job: chain
tables:
{tables}
sinks:
  result: {{mode: retract, topic: result, sql: "{sql}"}}
"""
_TABLE = "  {0}: {{mode: retract, primary_key: id, columns: {{id: BIGINT NOT NULL, k: BIGINT NOT NULL, v: STRING}}}}"


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.one_key", description="Joins by one key.")
    parser.add_argument("--write", action="store_true", help="put the table into tests/bench/README.md")
    parser.add_argument("--keys", type=int, default=20_000, help="of each table; also the rows of a batch")
    given, rows = parser.parse_args(), []
    for kind in ("JOIN", "LEFT JOIN"):
        for tables, each in ((3, 1), (3, 3), (5, 1)):
            found = [_run(kind, tables, each, given.keys, kept=kept) for kept in (True, False)]
            shown = [f"{before:,.0f} → {after:,.0f}" for before, after in zip(*found, strict=True)]
            rows.append([f"{tables} tables, {kind}", f"{each}", *shown])
            print(rows[-1], flush=True)
    head = ["", "rows of a key", "rows kept", "KiB kept", "ms to insert", "ms to update"]
    note = "Intermediate results of joins on one key: stored → recomputed. CPU time of the operators alone."
    table = Table("Joins on one key", head, rows, note)
    print(table.text())
    if given.write:
        page.write("one key", [table])
    return 0


@contextmanager
def _passes(*, kept: bool) -> Iterator[None]:
    phases = pipeline.PHASES
    own = [tuple(each for each in phase.passes if not kept or each is not reuse_join_state) for phase in phases]
    pipeline.PHASES = tuple(replace(phase, passes=passes) for phase, passes in zip(phases, own, strict=True))
    try:
        yield
    finally:
        pipeline.PHASES = phases


def _run(kind: str, tables: int, each: int, keys: int, *, kept: bool) -> tuple[float, float, float, float]:
    """Return rows and KiB in state, CPU in ms to insert all rows, and CPU in ms to update a batch of each table."""
    names = "abcde"[:tables]
    joined = " ".join(["a", *(f"{kind} {name} ON a.k = {name}.k" for name in names[1:])])
    sql = f"SELECT {', '.join(f'{name}.v AS {name}' for name in names)} FROM {joined}"
    with tempfile.TemporaryDirectory(prefix="rowkind-key-") as folder, _passes(kept=kept):
        file = Path(folder) / "job.yaml"
        file.write_text(_JOB.format(tables="\n".join(map(_TABLE.format, names)), sql=sql))
        engine = MemoryEngine(pipeline.plan(load(file), "result"))
    record = next(scan.scan.source.declared for scan in engine.graph.scans)
    random, number = np.random.default_rng(7), 0

    def rows(ids: np.ndarray, kinds: np.ndarray, text: str) -> Rows:
        nonlocal number
        columns = {"id": pa.array(ids), "k": pa.array(ids % keys), "v": pa.array([f"{text} {id_}" for id_ in ids])}
        number += len(ids)
        return Rows(kinds, np.arange(number - len(ids), number), encode(record, columns, len(ids)))

    came, replaced = 0.0, 0.0
    for name in names:
        ids = random.permutation(keys * each)
        for part in np.array_split(ids, max(1, len(ids) // keys)):
            batch = {name: rows(part, np.full(len(part), RowKind.INSERT, np.int8), "first")}
            began = time.process_time()
            engine.batch(batch, number)
            came += time.process_time() - began
    for name in names:
        ids = random.permutation(keys * each)[: keys // 4]
        kinds = np.repeat([RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER], len(ids)).astype(np.int8)
        parts = rows(ids, kinds[: len(ids)], "first"), rows(ids, kinds[len(ids) :], "second")
        batch = {name: Rows.concat(parts)}
        began = time.process_time()
        engine.batch(batch, number)
        replaced += time.process_time() - began
    state = engine.state.values()
    return sum(s.rows for s in state), sum(s.bytes for s in state) / 1024, 1000 * came, 1000 * replaced


if __name__ == "__main__":
    raise SystemExit(main())
