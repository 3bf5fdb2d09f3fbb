"""The names of a graph's states, and the description of plans in a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rowkind.service.job.load import load
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalNode, PhysicalSink, PhysicalUnion
from rowkind.service.physical.operators import PhysicalAggregate, PhysicalJoin, PhysicalNormalize, PhysicalRank
from rowkind.service.plan.fingerprint import differences, fingerprint
from rowkind.service.plan.pipeline import plan
from tests.queries import BY_KEY, CUSTOMERS, by, everything, scan, select
from tests.unit.run.shared_sinks import COUNT, JOIN, SAME_JOIN, plans


def test_an_operator_with_another_ttl_is_another_one_with_state_of_its_own(tmp_path: Path) -> None:
    """Operators that differ only in their TTL have separate states; the name of the first one's ignores the TTL."""
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
    """A state's name depends only on the computation, not on other sinks, aliases or columns that are read."""
    sinks = plans(tmp_path, COUNT, SAME_JOIN, JOIN, "SELECT d, c FROM r")
    alone = {each.state for sink in sinks for each in graph([sink]).operators}

    for some in (sinks, sinks[::-1], sinks[1:], sinks[:2]):
        states = [each.state for each in graph(some).operators]
        assert len(states) == len(set(states))
        assert set(states) <= alone
    assert {each.state for each in graph(sinks).operators} == alone
    assert all(len(state) == 16 for state in alone)


def test_states_keep_the_names_that_a_checkpoint_has_for_them(tmp_path: Path) -> None:
    """With a checkpoint's names, an operator keeps its state if another with a different TTL is removed or moved."""
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
    """A chain of 40 fused operators is one level, and each has its own state although their settings are equal."""
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
    """A changed range, tie order, stage, layout or input is listed as a difference under its node's name."""
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
