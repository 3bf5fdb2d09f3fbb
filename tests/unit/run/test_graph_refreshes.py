"""TTL refreshes: the operators and exits of a graph that pass them on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.batch import Batch
from rowkind.service.job.load import load
from rowkind.service.physical.graph import Exit, graph
from rowkind.service.physical.node import PhysicalScan, PhysicalSink
from rowkind.service.physical.operators import PhysicalJoin, PhysicalNormalize
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.query.trial import read
from tests.unit.run.shared_sinks import JOIN, plans


def with_a_ttl(sink: PhysicalSink) -> PhysicalSink:
    """Return the plan of `JOIN` in which the join's left input has a TTL of 10 s, and no other input has one."""
    join = sink.input
    assert isinstance(join, PhysicalJoin)
    normalize = join.left
    assert isinstance(normalize, PhysicalNormalize)
    assert isinstance(normalize.input, PhysicalScan)
    table = replace(normalize.input, calc=replace(normalize.input.calc, refreshes=True))
    left = replace(normalize, input=table, calc=replace(normalize.calc, refreshes=True))
    return replace(sink, input=replace(join, left=left, left_input=replace(join.left_input, ttl_ms=10_000)))


@pytest.mark.parametrize("turned", [False, True], ids=["with a TTL last", "with a TTL first"])
def test_an_operator_refreshes_if_one_of_its_consumers_wants_it(tmp_path: Path, turned: bool) -> None:
    """A shared operator passes refreshes on if one of its consumers needs them, but only to that consumer."""
    plain, other = plans(tmp_path, JOIN, JOIN)
    sinks = [plain, with_a_ttl(other)]
    assert not any(each.refreshes for each in graph([plain]).operators)
    seen: list[tuple[str, str]] = []

    def watch(way: Exit, batch: Batch) -> None:
        seen.extend((place(way), SYMBOLS[kind]) for kind in batch.changes.kind.tolist())
        seen.extend((place(way), "refresh") for _ in range(len(batch.refreshes)))

    engine = MemoryEngine(
        *(sinks[::-1] if turned else sinks),
        watch=watch,
    )
    whole = engine.graph

    def place(way: Exit) -> str:
        return whole.operators[way.to].sink if way.to < len(whole.operators) else whole.sinks[way.to - 3].name

    assert [(each.node.node, each.refreshes) for each in whole.operators] == [
        ("normalize_1", True),
        ("join_1", False),
        ("join_1", False),
    ]
    job = load(tmp_path / "job.yaml", {})
    line = json.dumps({"table": "u", "op": "+U", "row": {"k": 1, "a": 1, "n": "x"}})
    (batch,) = read(job, [line], "changes", 1)
    first = whole.operators[0].sink
    engine.batch(batch, now=0)
    assert (seen[0], sorted(seen[1:])) == ((first, "+U"), [("s0", "+I"), ("s1", "+I")])
    seen.clear()
    engine.batch({name: replace(rows, seq=rows.seq + 1) for name, rows in batch.items()}, now=1)
    assert seen == [(first, "+U"), ("s1", "refresh")]


def test_an_input_of_a_shared_operator_refreshes_however_far_down_it_is(tmp_path: Path) -> None:
    """If a second plan needs refreshes, all shared operators on their way pass them on."""
    (sink,) = plans(tmp_path, JOIN)
    join = sink.input
    assert isinstance(join, PhysicalJoin)
    again = replace(with_a_ttl(sink), name="again").input
    assert isinstance(again, PhysicalJoin)
    told = replace(
        sink,
        name="told",
        input=replace(again, left_input=join.left_input, calc=replace(join.calc, refreshes=True)),
    )
    whole = graph([sink, told])

    assert [(each.node.node, each.refreshes) for each in whole.operators] == [("normalize_1", True), ("join_1", True)]
    assert [way.calc.refreshes for way in whole.operators[1].exits] == [False, True]
    assert [(each.scan.source.table, each.exits[0].calc.refreshes) for each in whole.scans] == [
        ("u", True),
        ("r", False),
    ]
