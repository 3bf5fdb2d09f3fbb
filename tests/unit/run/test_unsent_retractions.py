"""Retractions without an insertion in tables without a key: counted once, and reported once or fatal.

The job's `unmatched` setting decides. `tests/oracle/test_stray_retractions_oracle.py` tests that such retractions do
not change a result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from rowkind.avro.json_rows import encode
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.service.execute import calc
from rowkind.service.job.columns import declared
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.physical.node import PhysicalNode, PhysicalOperator, PhysicalScan, PhysicalSink
from rowkind.service.physical.tree import walk
from rowkind.service.plan.fingerprint import differences, fingerprint
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.query.operator_letters import UnmatchedLetters
from rowkind.service.query.trial import TrialBatch, UnmatchedError, in_memory, results
from tests.queries import stateful

JOB = """
job: strays
unmatched: {policy}
dead_letters: {{topic: letters}}
tables:
  a: {{topic: topic-a, mode: retract, exact: {exact}, columns: {{id: BIGINT, k: BIGINT{more}}}}}
  b: {{topic: topic-b, mode: retract, columns: {{k: BIGINT, w: BIGINT}}}}
sinks:
  result: {{topic: result, mode: retract, sql: "{sql}"}}
"""
GROUPS = "SELECT k, COUNT(*) AS n FROM a GROUP BY k"
NOT_IN = "SELECT id FROM a WHERE k NOT IN (SELECT k FROM b)"
STRAY = (RowKind.DELETE, {"id": 7, "k": 5})
"""A retraction that agrees with the stored row only in the column that `GROUPS` reads."""


def planned(
    folder: Path, sql: str, *, policy: str = "ignore", exact: str = "false", more: str = ""
) -> tuple[Job, PhysicalSink]:
    """Return the job and its plan."""
    (folder / "job.yaml").write_text(JOB.format(policy=policy, exact=exact, more=more, sql=sql))
    job = load(folder / "job.yaml")
    return job, plan(job, "result")


def rows(job: Job, table: str, *changes: tuple[RowKind, Mapping[str, int]], offset: int = 0) -> Rows:
    """Return changes of a table, all in partition 3."""
    kinds = np.array([kind for kind, _ in changes], np.int8)
    seqs = (np.arange(offset, offset + len(changes)) << 16) + 3
    return Rows(kinds, seqs, encode(declared(job, table), [row for _, row in changes]))


def test_a_stray_becomes_one_letter(tmp_path: Path) -> None:
    """The dead letter names the record and has the columns that the query reads, without the row digest."""
    job, sink = planned(tmp_path, GROUPS)
    operators: dict[str, PhysicalOperator] = {node.node: node for node in stateful(sink)}
    letters: list[DeadLetter] = []

    def unmatched(node: str, lost: Changes) -> None:
        letters.extend(map(DeadLetter.from_bytes, UnmatchedLetters(operators[node])(lost).to_pylist()))

    engine = MemoryEngine(sink, unmatched=unmatched)
    engine.batch({"a": rows(job, "a", (RowKind.INSERT, {"id": 5, "k": 5}))}, now=1)
    engine.batch({"a": rows(job, "a", STRAY, offset=41)}, now=2)

    (letter,) = letters
    assert (letter.table, letter.topic, letter.partition, letter.offset) == ("a", "topic-a", 3, 41)
    assert (letter.error, json.loads(letter.value or b"")) == ("UnmatchedRetraction", {"k": 5})


def test_a_stray_is_fatal_where_the_job_says_so(tmp_path: Path) -> None:
    """`unmatched: fail` stops the run at the batch of the retraction and not before."""
    job, sink = planned(tmp_path, GROUPS, policy="fail")
    batches = [
        TrialBatch({"a": rows(job, "a", (RowKind.INSERT, {"id": 5, "k": 5}))}),
        TrialBatch({"a": rows(job, "a", STRAY, offset=1)}),
    ]
    found = results(job, sink, batches, in_memory(lambda _: None), fold=False)
    assert next(found)["row"] == {"k": 5, "n": 1}
    with pytest.raises(UnmatchedError):
        next(found)


def test_what_is_planned_again_for_a_not_in_counts_no_stray_again(tmp_path: Path) -> None:
    """The right side of NOT IN is planned three times, but an unmatched retraction is counted once."""
    job, sink = planned(tmp_path, NOT_IN)
    counted: list[tuple[str, int]] = []
    engine = MemoryEngine(sink, unmatched=lambda node, lost: counted.append((node, len(lost))))
    engine.batch({"b": rows(job, "b", (RowKind.INSERT, {"k": 1, "w": 1}))}, now=1)
    engine.batch({"b": rows(job, "b", (RowKind.DELETE, {"k": 1, "w": 2}))}, now=2)
    assert [count for _, count in counted] == [1]


@pytest.mark.parametrize("sql", [GROUPS, "SELECT a.id FROM a JOIN b ON a.k = b.w", NOT_IN])
def test_of_an_exact_table_rows_are_not_told_apart(sql: str, tmp_path: Path) -> None:
    """Rows of an exact table get no digest, and no column is read for one."""

    def of_a(sink: PhysicalSink) -> PhysicalScan:
        return next(node for node in walk(sink) if isinstance(node, PhysicalScan) and node.source.table == "a")

    told = of_a(planned(tmp_path, sql)[1])
    left = of_a(planned(tmp_path, sql, exact="true")[1])
    assert "a.#row" in told.calc.output.names
    assert "a.#row" not in left.calc.output.names
    assert set(left.calc.input.names) <= set(told.calc.input.names) == {"id", "k"}


def test_nothing_behind_the_first_operator_knows_of_the_digest(tmp_path: Path) -> None:
    """Only the first operator has the digest; its output is exact."""
    _, sink = planned(tmp_path, "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)")
    scans: list[PhysicalNode] = [node for node in walk(sink) if isinstance(node, PhysicalScan)]
    operators: list[PhysicalNode] = [node for node in walk(sink) if not isinstance(node, PhysicalScan | PhysicalSink)]
    assert [name for scan in scans for name in scan.calc.output.names if "#" in name] == ["a.#row", "exists_1.b.#row"]
    assert not [name for node in operators for name in node.calc.output.names if "#" in name]


def test_a_changed_table_does_not_run_over_digests_of_the_old_one(tmp_path: Path) -> None:
    """A new column changes every digest, so the fingerprint differs and names the column."""
    before = fingerprint(planned(tmp_path, GROUPS)[1])
    after = fingerprint(planned(tmp_path, GROUPS, more=", v: STRING")[1])
    assert differences(before, after) == ["scan_a.digest: none -> v STRING"]


def test_equal_rows_have_equal_digests_and_others_have_not(tmp_path: Path) -> None:
    """Equal rows have equal digests of 16 bytes, and the payload does not contain the pruned columns."""
    job, sink = planned(tmp_path, GROUPS)
    given = [(RowKind.INSERT, {"id": number // 2, "k": 1}) for number in range(4)]
    (scan,) = (node for node in walk(sink) if isinstance(node, PhysicalScan))
    payloads = calc.run(scan.calc, rows(job, "a", *given)).payload.to_pylist()
    assert payloads[0] == payloads[1] != payloads[2] == payloads[3]
    assert {len(payload) for payload in payloads} == {2 + 1 + 16}
