"""The graph of a job: shared operators, levels, exits, and table scans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rowkind.avro.schema import Type
from rowkind.service.job.load import load
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.graph import Graph, graph
from rowkind.service.physical.keys import Key
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.physical.operators import PhysicalAggregate, PhysicalJoin
from rowkind.service.plan.pipeline import plan
from tests.queries import ORDERS, aggregation, call, everything, scan, select, stateful
from tests.unit.run.shared_sinks import COUNT, JOIN, SAME_JOIN, plans, ways


def names(whole: Graph) -> list[str]:
    """Return the names of the operators."""
    return [each.node.node for each in whole.operators]


def test_fused_operators_share_a_level_and_a_shuffle_begins_the_next() -> None:
    """Fused operators are in the level of their consumer, after their inputs, and a shuffle begins the next level."""
    whole = graph([everything()])
    found = {each.node.node: (each.level, ways(each.exits)) for each in whole.operators}
    place = {name: number for number, name in enumerate(names(whole))}

    assert found == {
        "normalize_1": (1, [(place["aggregate_1"], 2, False), (place["aggregate_2"], 2, False)]),
        "aggregate_1": (2, [(place["join_1"], 2, True)]),
        "normalize_2": (1, [(place["join_1"], 2, True)]),
        "join_1": (2, [(place["join_2"], 2, True)]),
        "join_2": (2, [(place["rank_1"], 3, False)]),
        "join_3": (1, [(place["rank_1"], 3, False)]),
        "rank_1": (3, [(place["join_4"], 4, False)]),
        "aggregate_2": (2, [(place["join_4"], 4, True)]),
        "join_4": (4, [(whole.place("all"), whole.writer, True)]),
    }
    assert (whole.levels, whole.writer) == (4, 5)
    for number, each in enumerate(whole.operators):
        assert all(way.to > number and way.level >= each.level for way in each.exits)


def test_without_fused_operators_each_lies_deeper_than_what_feeds_it() -> None:
    """With a shuffle before every operator, each operator is in a later level than its inputs."""
    whole = graph([everything(fused=False)])
    level = dict(enumerate(each.level for each in whole.operators))

    assert {"normalize_3", *names(whole)} == {node.node for node in stateful(everything())}
    for each in whole.operators:
        assert all(way.level > each.level and way.level == level.get(way.to, whole.writer) for way in each.exits)
    assert whole.levels == 6


def test_what_is_fused_to_a_deeper_consumer_stays_in_its_shard_all_the_way(tmp_path: Path) -> None:
    """An operator that is fused to a consumer in a later level passes its rows there without a shuffle."""
    sql = (
        "SELECT x.b, x.m, y.n FROM (SELECT b, COUNT(*) AS m FROM r GROUP BY b) x "
        "JOIN (SELECT MAX(c) AS b, COUNT(*) AS n FROM (SELECT c, d FROM r GROUP BY c, d) GROUP BY c) y ON x.b = y.b"
    )
    whole = graph(plans(tmp_path, sql))
    (deep,) = [number for number, each in enumerate(whole.operators) if isinstance(each.node, PhysicalJoin)]
    (shallow,) = [each for each in whole.operators if each.level == 1 and each.exits[0].to == deep]

    assert whole.operators[deep].level == 3
    assert ways(shallow.exits) == [(deep, 3, True)]


def test_a_table_is_read_once_with_all_columns_that_somebody_reads(tmp_path: Path) -> None:
    """Two sinks with three scans of a table share one scan with the union of the columns in the table's order."""
    both = plans(tmp_path, "SELECT d, b FROM r WHERE b > 0", "SELECT x.b, y.b AS z FROM r x JOIN r y ON x.c = y.c")
    whole = graph(both)
    (table,) = whole.scans

    assert table.scan.calc.input.names == ("b", "c", "d")
    assert {way.calc.input for way in table.exits} == {table.scan.calc.input}
    assert sorted((way.to, way.level) for way in table.exits) == [(0, 1), (0, 1), (1, 2)]
    assert [graph([each]).scans[0].scan.calc.input.names for each in both] == [("b", "d"), ("b", "c")]


def test_what_two_sinks_compute_alike_is_one_operator_with_an_exit_for_each(tmp_path: Path) -> None:
    """Operators that compute the same are shared, regardless of names and of the expressions over their rows."""
    first, second = plans(tmp_path, JOIN, SAME_JOIN)
    whole = graph([first, second])

    assert names(whole) == ["normalize_1", "join_1"]
    assert [each.sink for each in whole.operators] == ["s0", "s0"]
    assert ways(whole.operators[1].exits) == [(2, 3, True), (3, 3, True)]
    assert [way.calc.output.names for way in whole.operators[1].exits] == [("k", "n", "b"), ("name", "more")]
    assert [(each.scan.source.table, len(each.exits)) for each in whole.scans] == [("u", 1), ("r", 1)]


def test_equal_operators_of_one_plan_are_one(tmp_path: Path) -> None:
    """Both sides of a self join come from one normalize, by two exits."""
    whole = graph(plans(tmp_path, "SELECT x.n, y.n AS m FROM u x JOIN u y ON x.a = y.a"))

    assert names(whole) == ["normalize_1", "join_1"]
    assert [(way.node, way.to, way.calc.side) for way in whole.operators[0].exits] == [
        ("normalize_1", 1, 0),
        ("normalize_2", 1, 1),
    ]


@pytest.mark.parametrize(
    "other",
    [
        "SELECT u.k, u.n, r.b FROM u LEFT JOIN r ON u.a = r.b",
        "SELECT u.k, u.n, r.c AS b FROM u JOIN r ON u.a = r.c",
        "SELECT u.k, u.n, r.b FROM u JOIN r ON u.a = r.b AND u.k < r.b",
        "SELECT u.k, u.n, r.b FROM u JOIN r ON u.a = r.b WHERE r.c > 1",
        "SELECT u.k, u.n, r.b FROM v AS u JOIN r ON u.a = r.b",
        "SELECT u.k, u.n, r.b, r.d FROM u JOIN r ON u.a = r.b",
    ],
    ids=["kind", "key", "condition", "filter below", "table", "columns"],
)
def test_what_is_computed_otherwise_is_another_operator(tmp_path: Path, other: str) -> None:
    """Operators that differ in one part are not shared, even if only one more column is stored."""
    whole = graph(plans(tmp_path, JOIN, other))
    joins = [each for each in whole.operators if isinstance(each.node, PhysicalJoin)]

    assert [len(each.exits) for each in joins] == [1, 1]
    assert joins[0].state != joins[1].state


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("'a'", "'b'", False),
        ("'u.n'", "'x.n'", False),
        ("'it''s \"u\"'", "'it''s \"u\"'", True),
        ("'it''s \"u\"'", "'it''s \"x\"'", False),
    ],
)
def test_texts_that_look_like_names_are_texts(tmp_path: Path, one: str, other: str, same: bool) -> None:
    """Only column names are replaced with positions; text literals that look like names are not."""
    text = "SELECT {0}.k, y.b FROM u AS {0} JOIN r AS y ON {0}.a = y.b AND {0}.n || y.d <> {1}"
    whole = graph(plans(tmp_path, text.format("u", one), text.format("x", other)))

    assert len([each for each in whole.operators if isinstance(each.node, PhysicalJoin)]) == 1 + (not same)


def _filtered(*names: str) -> PhysicalSink:
    """Return a count filtered by the column `paid`, which is the first or the second of two columns."""
    said = Expression('"amount" > 1', Type.of("BOOLEAN"), ("amount",), "amount > 1")
    none = Expression('"amount" IS NULL', Type.of("BOOLEAN"), ("amount",), "amount IS NULL")
    calc = select(ORDERS, (names[0], said), (names[1], none), key=Key(), nets=True)
    counted = aggregation(calc.output, (), [replace(call("n", "count", "BIGINT NOT NULL"), filter="paid")])
    node = PhysicalAggregate("aggregate_1", scan("o", ORDERS, "append", calc), counted, calc=select(counted.output))
    name = "-".join(names)
    return PhysicalSink(name, name, "retract", node, (), counted.output, None, exchange=False)


def test_the_filter_of_a_call_is_a_column_like_any_other() -> None:
    """A call's filter is compared by its column's position and not by its name."""
    first, second = _filtered("paid", "other"), _filtered("other", "paid")
    third = _filtered("paid", "another")

    assert len(graph([first, second]).operators) == 2
    assert len(graph([first, third]).operators) == 1


def test_only_what_comes_out_of_the_last_level_is_shuffled_before_it_is_written(tmp_path: Path) -> None:
    """Only rows from the last level are shuffled before the sink; rows of earlier levels are shuffled on their way."""
    counted, passed = plans(tmp_path, COUNT, "SELECT b FROM r")
    shuffled = replace(passed, exchange=True)
    deep, above = everything(), replace(counted, exchange=True)

    assert [graph([each]).exchange for each in (counted, passed, deep)] == [False, False, False]
    assert [graph([replace(each, exchange=True)]).exchange for each in (counted, passed, deep)] == [True, True, True]
    assert not graph([counted, shuffled]).exchange
    assert not graph([deep, above]).exchange
    assert graph([passed, shuffled]).exchange
    assert graph([replace(deep, exchange=True), counted]).exchange
    (shallow,) = [each for each in graph([deep, above]).operators if each.sink == "s0"]
    assert ways(shallow.exits) == [(11, 5, False)]


def test_what_a_task_has_read_of_a_key_is_not_netted_for_a_topic(tmp_path: Path) -> None:
    """Changes of a key are netted for a topic only after an operator, as a task may have read only some of them."""
    text = """
job: netted
tables:
  e: {mode: retract, primary_key: [k], exact: true, columns: {k: INT NOT NULL, xs: ARRAY<INT>}}
  u: {mode: upsert, primary_key: [k], columns: {k: INT NOT NULL, a: INT NOT NULL}}
sinks:
  taken_apart: {mode: upsert, key: [k, p], sql: "SELECT k, p, x FROM e LATERAL VIEW POSEXPLODE(xs) z AS p, x"}
  joined:
    mode: upsert
    key: [k]
    sql: SELECT u.k, c.n FROM u JOIN (SELECT a, COUNT(*) AS n FROM u GROUP BY a) c USING (a)
"""
    (tmp_path / "job.yaml").write_text(text)
    job = load(tmp_path / "job.yaml", {})
    taken_apart, joined = (graph([plan(job, name)]) for name in ("taken_apart", "joined"))
    assert [way.nets for each in taken_apart.scans for way in each.exits] == [None]
    assert [way.nets for way in joined.operators[-1].exits] == ["signed"]


def test_a_sink_has_a_place_behind_all_operators(tmp_path: Path) -> None:
    """Sinks come after all operators in the given order, and a sink without operators gets its rows from the scan."""
    whole = graph(plans(tmp_path, JOIN, "SELECT b FROM r WHERE c = 1", COUNT))

    assert [whole.place(name) for name in ("s0", "s1", "s2")] == [3, 4, 5]
    (r,) = [each for each in whole.scans if each.scan.source.table == "r"]
    assert sorted(ways(r.exits)) == [(1, 2, False), (2, 1, False), (4, 3, True)]
