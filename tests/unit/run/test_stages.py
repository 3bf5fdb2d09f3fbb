"""Which operators run together, what reaches them from outside, and what a checkpoint remembers of that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rowkind.operators.columns.changes import Changes, binary
from rowkind.operators.columns.hashing import hash64
from rowkind.service.execute.members import MOST_MEMBERS, SIDES, address, addressed
from rowkind.service.execute.operators import operator
from rowkind.service.execute.stages import Stage, shard_without_key, stage, stateful, without_unions
from rowkind.service.physical import PhysicalJoin, PhysicalNormalize, PhysicalRank, PhysicalSink, PhysicalUnion
from rowkind.service.plan.fingerprint import differences, fingerprint
from tests.queries import BY_KEY, CUSTOMERS, by, everything, scan, select


def stages(sink: PhysicalSink) -> list[Stage]:
    """All stages of a plan, the sink's first."""
    found = [stage(node) for node in without_unions(sink.input) if node in stateful(sink)]
    for each in found:
        found += [stage(inflow.node) for inflow in each.inflows if inflow.node in stateful(sink)]
    return found


def test_fused_operators_are_one_stage_and_each_comes_before_the_one_it_feeds() -> None:
    """The plan of every operator: what is fused runs with its consumer, unions are looked through."""
    found = {
        each.name: (
            [(member.node.node, member.feeds) for member in each.members],
            [(inflow.node.node, inflow.member) for inflow in each.inflows],
        )
        for each in stages(everything())
    }

    assert found == {
        "join_4": ([("aggregate_2", 1), ("join_4", None)], [("rank_1", 1), ("normalize_3", 0)]),
        "rank_1": ([("rank_1", None)], [("join_2", 0), ("join_3", 0)]),
        "normalize_3": ([("normalize_3", None)], [("scan_o2", 0)]),
        "join_2": (
            [("normalize_2", 2), ("aggregate_1", 2), ("join_1", 3), ("join_2", None)],
            [("scan_b", 3), ("scan_b_any", 3), ("scan_b_null", 3), ("normalize_1", 1), ("scan_c", 0)],
        ),
        "join_3": ([("join_3", None)], [("scan_e", 0), ("scan_c2", 0)]),
        "normalize_1": ([("normalize_1", None)], [("scan_o", 0)]),
    }


def test_without_fused_operators_each_is_a_stage() -> None:
    """The same plan with a shuffle before every operator."""
    sink = everything(fused=False)

    assert sorted(each.name for each in stages(sink)) == sorted(node.node for node in stateful(sink))


def test_a_stage_without_keys_has_one_shard() -> None:
    """A cross join with a count of everything has; the facts of a NOT IN, whose key is constant, do not matter."""
    assert [each.name for each in stages(everything()) if each.has_one_shard] == ["join_4"]
    empty = hash64(binary([b""]))[0]
    assert [shard_without_key(shards) for shards in (1, 2, 7)] == [empty % np.uint64(each) for each in (1, 2, 7)]


def test_a_stage_with_more_members_than_a_side_can_say_is_cut() -> None:
    """A chain of more operators than fit runs in two stages, with all of them."""
    node = scan(
        "c", CUSTOMERS, "upsert", select(CUSTOMERS, key=by(CUSTOMERS, "id"), upsert=True, replaced_by=("id",)), "id"
    )
    for number in range(MOST_MEMBERS + 5):
        calc = select(CUSTOMERS, key=by(CUSTOMERS, "id"))
        node = PhysicalNormalize(f"normalize_{number}", node, BY_KEY, "", calc, fused=True)
    last = stage(node)
    (inflow,) = last.inflows
    assert isinstance(inflow.node, PhysicalNormalize)
    rest = stage(inflow.node)

    assert (len(last.members), len(rest.members)) == (MOST_MEMBERS, 5)
    assert last.inflows[0].member == 0
    assert np.iinfo(np.int8).max + 1 >= SIDES * MOST_MEMBERS


@pytest.mark.parametrize("member", [0, 1, MOST_MEMBERS - 1])
def test_changes_reach_the_member_that_they_are_addressed_to(member: int) -> None:
    """With the sides that it knows them by, and nobody else."""
    sides = np.array([0, 1, 2, SIDES - 1], np.int8)
    rows = np.zeros(4, np.int64)
    bytes_ = binary([b""] * 4)
    changes = Changes(sides, rows.astype(np.int8), rows.astype(np.uint64), bytes_, bytes_, rows, bytes_)
    sent = address(changes, member)

    assert addressed(sent, member).side.tolist() == sides.tolist()
    assert sum(len(addressed(sent, other)) for other in range(MOST_MEMBERS) if other != member) == 0


def test_every_operator_of_a_plan_is_made_and_names_its_state_apart() -> None:
    """No two arrangements of a stage have the same name, and a one-sided join is one of its own kind."""
    for each in stages(everything()):
        names = [f"{member.node.node}.{name}" for member in each.members for name in operator(member.node).arrangements]
        assert len(names) == len(set(names)) > 0
    kinds = {node.node: type(operator(node)).__name__ for node in stateful(everything())}
    assert kinds["join_2"] == kinds["join_3"] == "SemiJoin"
    assert (kinds["aggregate_1"], kinds["rank_1"], kinds["normalize_1"]) == (
        "Aggregate",
        "Rank",
        "Normalize",
    )


def test_a_checkpoint_tells_plans_apart_by_the_node_that_changed() -> None:
    """A range, a call, a layout, an order or a stage that is another is a fact that differs, under its node's name."""
    sink = everything()
    join = sink.input
    assert isinstance(join, PhysicalJoin)
    ranked = join.left
    assert isinstance(ranked, PhysicalRank)
    assert isinstance(ranked.input, PhysicalUnion)
    before = fingerprint(sink, 2)

    def changed(**parts: object) -> list[str]:
        other = replace(sink, input=replace(join, left=replace(ranked, **parts)))
        return [line.partition(":")[0] for line in differences(before, fingerprint(other, 2))]

    assert changed(ranking=replace(ranked.ranking, last=3)) == ["rank_1.rows"]
    assert changed(ranking=replace(ranked.ranking, ties="latest first")) == ["rank_1.rows"]
    assert changed(fused=True) == ["rank_1.stage"]
    assert changed(state=BY_KEY) == ["rank_1.state"]
    moved = differences(before, fingerprint(replace(sink, exchange=True), 2))
    assert moved == ["sink.rows: from where they are -> shuffled by key"]
    united = replace(ranked.input, inputs=ranked.input.inputs[::-1])
    assert changed(input=united) == ["union_1.inputs"]
    assert differences(before, fingerprint(everything(fused=False), 2)) == [
        f"{node}.stage: that of its consumer -> its own"
        for node in ("aggregate_1", "aggregate_2", "join_1", "normalize_2")
    ]
