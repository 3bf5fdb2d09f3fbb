"""What sinks share, which operators run together and what reaches them, and what a checkpoint remembers of that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rowkind.avro.schema import Type
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.batch import Batch
from rowkind.service.job.load import load
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.graph import Exit, Graph, graph
from rowkind.service.physical.keys import Key
from rowkind.service.physical.node import PhysicalNode, PhysicalScan, PhysicalSink, PhysicalUnion
from rowkind.service.physical.operators import PhysicalAggregate, PhysicalJoin, PhysicalNormalize, PhysicalRank
from rowkind.service.plan.fingerprint import differences, fingerprint
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.query.trial import read
from tests.queries import BY_KEY, CUSTOMERS, ORDERS, aggregation, by, call, everything, scan, select, stateful

TABLES = """
job: shared
tables:
  u: {mode: upsert, primary_key: [k], columns: {k: INT NOT NULL, a: INT, n: STRING}}
  v: {mode: upsert, primary_key: [k], columns: {k: INT NOT NULL, a: INT, n: STRING}}
  r: {mode: append, columns: {b: INT, c: INT, d: STRING}}
sinks:
"""
JOIN = "SELECT u.k, u.n, r.b FROM u JOIN r ON u.a = r.b"
SAME_JOIN = "SELECT x.n AS name, x.k + y.b AS more FROM u AS x JOIN r AS y ON x.a = y.b"
COUNT = "SELECT c, COUNT(*) AS n FROM r GROUP BY c"


def plans(folder: Path, *queries: str) -> list[PhysicalSink]:
    """The plans of these queries, as sinks `s0`, `s1`, … of one job."""
    text = TABLES + "".join(
        f"  s{number}: {{topic: s{number}, mode: retract, sql: {json.dumps(sql)}}}\n"
        for number, sql in enumerate(queries)
    )
    (folder / "job.yaml").write_text(text)
    job = load(folder / "job.yaml", {})
    return [plan(job, f"s{number}") for number in range(len(queries))]


def names(whole: Graph) -> list[str]:
    """What the operators are called."""
    return [each.node.node for each in whole.operators]


def ways(exits: Sequence[Exit]) -> list[tuple[int, int, bool]]:
    """Where exits lead: place and level, and whether rows stay in their shard."""
    return [(way.to, way.level, way.stays) for way in exits]


def test_fused_operators_share_a_level_and_a_shuffle_begins_the_next() -> None:
    """The plan of every operator, in which one normalize is there twice: each is behind those that feed it."""
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
    """The same plan with a shuffle before every operator."""
    whole = graph([everything(fused=False)])
    level = dict(enumerate(each.level for each in whole.operators))

    assert {"normalize_3", *names(whole)} == {node.node for node in stateful(everything())}
    for each in whole.operators:
        assert all(way.level > each.level and way.level == level.get(way.to, whole.writer) for way in each.exits)
    assert whole.levels == 6


def test_what_is_fused_to_a_deeper_consumer_stays_in_its_shard_all_the_way(tmp_path: Path) -> None:
    """An aggregate that comes partitioned as a join wants it waits there for the other side, which is deeper."""
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
    """Two sinks and two scans in one of them: one scan with the union of columns in the table's order, four exits."""
    both = plans(tmp_path, "SELECT d, b FROM r WHERE b > 0", "SELECT x.b, y.b AS z FROM r x JOIN r y ON x.c = y.c")
    whole = graph(both)
    (table,) = whole.scans

    assert table.scan.calc.input.names == ("b", "c", "d")
    assert {way.calc.input for way in table.exits} == {table.scan.calc.input}
    assert sorted((way.to, way.level) for way in table.exits) == [(0, 1), (0, 1), (1, 2)]
    assert [graph([each]).scans[0].scan.calc.input.names for each in both] == [("b", "d"), ("b", "c")]


def test_what_two_sinks_compute_alike_is_one_operator_with_an_exit_for_each(tmp_path: Path) -> None:
    """Whatever tables and columns are called, and whatever is made of the rows behind it."""
    first, second = plans(tmp_path, JOIN, SAME_JOIN)
    whole = graph([first, second])

    assert names(whole) == ["normalize_1", "join_1"]
    assert [each.sink for each in whole.operators] == ["s0", "s0"]
    assert ways(whole.operators[1].exits) == [(2, 3, True), (3, 3, True)]
    assert [way.calc.output.names for way in whole.operators[1].exits] == [("k", "n", "b"), ("name", "more")]
    assert [(each.scan.source.table, len(each.exits)) for each in whole.scans] == [("u", 1), ("r", 1)]


def test_equal_operators_of_one_plan_are_one(tmp_path: Path) -> None:
    """The two sides of a self join come out of one normalize, each by its exit and on its side."""
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
    """Also where only a column more is kept."""
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
    """Only names of columns are taken for their places, not what stands between quotes."""
    text = "SELECT {0}.k, y.b FROM u AS {0} JOIN r AS y ON {0}.a = y.b AND {0}.n || y.d <> {1}"
    whole = graph(plans(tmp_path, text.format("u", one), text.format("x", other)))

    assert len([each for each in whole.operators if isinstance(each.node, PhysicalJoin)]) == 1 + (not same)


def _filtered(*names: str) -> PhysicalSink:
    """A count of the rows where the column is true that is called `paid`: the first or the second of two."""
    said = Expression('"amount" > 1', Type.of("BOOLEAN"), ("amount",), "amount > 1")
    none = Expression('"amount" IS NULL', Type.of("BOOLEAN"), ("amount",), "amount IS NULL")
    calc = select(ORDERS, (names[0], said), (names[1], none), key=Key(), nets=True)
    counted = aggregation(calc.output, (), [replace(call("n", "count", "BIGINT NOT NULL"), filter="paid")])
    node = PhysicalAggregate("aggregate_1", scan("o", ORDERS, "append", calc), counted, calc=select(counted.output))
    name = "-".join(names)
    return PhysicalSink(name, name, "retract", node, (), counted.output, None, exchange=False)


def test_the_filter_of_a_call_is_a_column_like_any_other() -> None:
    """It counts by its place: what is called the same elsewhere is another one."""
    first, second = _filtered("paid", "other"), _filtered("other", "paid")
    third = _filtered("paid", "another")

    assert len(graph([first, second]).operators) == 2
    assert len(graph([first, third]).operators) == 1


def test_an_operator_with_another_ttl_is_another_one_with_state_of_its_own(tmp_path: Path) -> None:
    """Both keep their state under names of their own, and that of the first is the same with any TTL."""
    (plain,) = plans(tmp_path, COUNT)
    hinted = "SELECT /*+ STATE_TTL('r' = '{}') */ c, COUNT(*) AS n FROM r GROUP BY c"
    hour, day = plans(tmp_path, hinted.format("1h"), hinted.format("1d"))
    (alone,), (first, second) = graph([plain]).operators, graph([hour, day]).operators

    assert first.state == alone.state
    assert second.state == f"{alone.state}@s1"
    assert [each.node.aggregation.ttl_ms for each in (first, second) if isinstance(each.node, PhysicalAggregate)] == [
        3_600_000,
        86_400_000,
    ]
    again = graph([hour, day, *plans(tmp_path, COUNT, SAME_JOIN)[1:]])
    assert [each.state for each in again.operators[:2]] == [first.state, second.state]


def test_the_name_of_a_state_says_what_is_computed_and_nothing_else(tmp_path: Path) -> None:
    """It is the same with other sinks before and behind, under other aliases, and whatever is read of the tables."""
    sinks = plans(tmp_path, COUNT, SAME_JOIN, JOIN, "SELECT d, c FROM r")
    alone = {each.state for sink in sinks for each in graph([sink]).operators}

    for some in (sinks, sinks[::-1], sinks[1:], sinks[:2]):
        states = [each.state for each in graph(some).operators]
        assert len(states) == len(set(states))
        assert set(states) <= alone
    assert {each.state for each in graph(sinks).operators} == alone
    assert all(len(state) == 16 for state in alone)


def with_a_ttl(sink: PhysicalSink) -> PhysicalSink:
    """The plan of `JOIN` in which the join, and nobody else, forgets rows of `u` after ten seconds."""
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
    """It says what was written again, and so does what comes to it; only exits that want to know let that out."""
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
    """A second plan that wants it finds the operators of the first, and all on the way are told."""
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


def test_only_what_comes_out_of_the_last_level_is_shuffled_before_it_is_written(tmp_path: Path) -> None:
    """Rows for a sink that come from further up have been shuffled on their way, where they had to be."""
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
    """Only the last change of an upsert table's key is; an operator nets, as it has all changes of a key in a batch."""
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
    """In the order in which they were given; what reads no operator has its rows from the scan."""
    whole = graph(plans(tmp_path, JOIN, "SELECT b FROM r WHERE c = 1", COUNT))

    assert [whole.place(name) for name in ("s0", "s1", "s2")] == [3, 4, 5]
    (r,) = [each for each in whole.scans if each.scan.source.table == "r"]
    assert sorted(ways(r.exits)) == [(1, 2, False), (2, 1, False), (4, 3, True)]


def test_states_keep_the_names_that_a_checkpoint_has_for_them(tmp_path: Path) -> None:
    """Whatever other sinks there are: of two that differ in their TTL, the second keeps its own when the first goes."""
    text = """
job: shop
tables:
  r: {mode: append, columns: {a: INT, b: INT}}
sinks:
  long: {mode: retract, sql: "SELECT a, COUNT(*) AS n FROM r GROUP BY a"}
  short: {mode: retract, sql: "SELECT /*+ STATE_TTL('r' = '1h') */ a, COUNT(*) AS n FROM r GROUP BY a"}
"""
    (tmp_path / "job.yaml").write_text(text)
    job = load(tmp_path / "job.yaml", {})
    both = graph([plan(job, "long"), plan(job, "short")])
    assert len({each.state for each in both.operators}) == 2
    (alone,) = graph([plan(job, "short")], states=both.states).operators
    assert alone.state == both.states["short.aggregate_1"] != graph([plan(job, "short")]).operators[0].state
    turned = graph([plan(job, "short"), plan(job, "long")], states=both.states)
    assert turned.states == both.states


def test_more_operators_than_a_byte_can_say_are_one_level() -> None:
    """A chain of fused operators, each of which is another one than the one it is made of, though nothing differs."""
    node: PhysicalNode = scan(
        "c", CUSTOMERS, "upsert", select(CUSTOMERS, key=by(CUSTOMERS, "id"), upsert=True, replaced_by=("id",)), "id"
    )
    for number in range(40):
        calc = select(CUSTOMERS, key=by(CUSTOMERS, "id"))
        node = PhysicalNormalize(f"normalize_{number}", node, BY_KEY, "", calc=calc, fused=True)
    whole = graph([PhysicalSink("chain", "chain", "retract", node, (), CUSTOMERS, None, exchange=False)])

    assert (whole.levels, len(whole.operators)) == (1, 40)
    assert len({each.state for each in whole.operators}) == 40
    assert [each.exits[0].to for each in whole.operators] == list(range(1, 41))


def test_a_checkpoint_tells_plans_apart_by_the_node_that_changed() -> None:
    """A range, a call, a layout, an order or a stage that is another is a fact that differs, under its node's name."""
    sink = everything()
    join = sink.input
    assert isinstance(join, PhysicalJoin)
    ranked = join.left
    assert isinstance(ranked, PhysicalRank)
    assert isinstance(ranked.input, PhysicalUnion)
    before = fingerprint(sink)

    def changed(**parts: object) -> list[str]:
        other = replace(sink, input=replace(join, left=replace(ranked, **parts)))
        return [line.partition(":")[0] for line in differences(before, fingerprint(other))]

    assert changed(ranking=replace(ranked.ranking, last=3)) == ["rank_1.rows"]
    assert changed(ranking=replace(ranked.ranking, ties="latest first")) == ["rank_1.rows"]
    assert changed(fused=True) == ["rank_1.stage"]
    assert changed(state=BY_KEY) == ["rank_1.state"]
    moved = differences(before, fingerprint(replace(sink, exchange=True)))
    assert moved == ["sink.rows: from where they are -> shuffled by key"]
    united = replace(ranked.input, inputs=ranked.input.inputs[::-1])
    assert changed(input=united) == ["union_1.inputs"]
    assert differences(before, fingerprint(everything(fused=False))) == [
        f"{node}.stage: that of its consumer -> its own"
        for node in ("aggregate_1", "aggregate_2", "join_1", "normalize_2")
    ]
