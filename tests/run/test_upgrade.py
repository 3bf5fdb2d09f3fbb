"""Which checkpoints of a job are kept when its job file changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rowkind.service.checkpoint.checkpoint_metadata import Contents
from rowkind.service.checkpoint.upgrade import Upgrade, contents, upgrade
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.query.queries import planned

JOB = """
job: shop
{settings}
tables:
  orders: {{mode: retract, columns: {{id: BIGINT NOT NULL, amount: INT, note: STRING}}, primary_key: id}}
  payments: {{mode: append, columns: {{order_id: BIGINT, paid: INT}}}}
views:
  big: SELECT id, SUM(amount) AS amount FROM orders WHERE amount > {over} GROUP BY id
sinks:
{sinks}
"""
SINKS = {
    "paid": "SELECT o.id, o.amount, p.paid FROM orders o JOIN payments p ON o.id = p.order_id",
    "sums": "SELECT order_id, SUM(paid) AS paid FROM payments GROUP BY order_id",
    "large": "SELECT id, amount FROM big",
    "larger": "SELECT id, amount FROM big WHERE amount > 100",
}


def job(folder: Path, sinks: Mapping[str, str] = SINKS, settings: str = "", over: int = 10) -> Job:
    """Return a job with these sinks."""
    lines = "\n".join(f'  {name}: {{mode: retract, sql: "{sql}"}}' for name, sql in sinks.items())
    file = folder / "job.yaml"
    file.write_text(JOB.format(settings=settings, sinks=lines, over=over))
    return load(file, {})


def recorded(of: Job, before: Mapping[str, Contents] | None = None) -> dict[str, Contents]:
    """Return the checkpoint metadata of a job that has run."""
    there = before or {}
    same = {name: each.planned_by for name, each in there.items()}
    return {name: contents(of, query, there.get(name))[1] for name, query in planned(of, same).items()}


def sinks(plan: Upgrade) -> dict[str, list[str]]:
    """Return the sinks of each query."""
    return {name: [sink.name for sink in query.sinks] for name, query in plan.queries.items()}


def test_what_does_not_matter_to_state_leaves_all_as_it_is(tmp_path: Path) -> None:
    """A change of the TTL, of comments or of formatting keeps all state."""
    before = recorded(job(tmp_path))
    spelled = SINKS | {"sums": "select order_id, sum(paid) as paid /* all */ from payments group by 1"}
    plan = upgrade(job(tmp_path, spelled, settings="ttl: 1d"), before)
    assert plan.stay == {"main"}
    assert not plan.changes
    assert not plan.left
    assert not plan.dropped


def test_a_changed_sink_leaves_its_query_and_the_others_stay(tmp_path: Path) -> None:
    """The changed sink gets its own query, and the plan says what changed."""
    before = recorded(job(tmp_path))
    after = job(tmp_path, SINKS | {"sums": SINKS["sums"].replace("SUM", "MAX")})
    plan = upgrade(after, before)
    assert sinks(plan) == {"main": ["paid", "large", "larger"], "sums": ["sums"]}
    assert (plan.stay, plan.left, plan.dropped) == ({"main"}, {"main"}, set())
    assert plan.changes.keys() == {"sums"}
    assert any("sum(payments.paid)" in line and "max(payments.paid)" in line for line in plan.changes["sums"])
    later = upgrade(after, recorded(after, {"main": recorded_without(before["main"], "sums")}))
    assert later.stay == {"main", "sums"}


def test_a_sink_that_shared_a_join_with_a_changed_one_stays(tmp_path: Path) -> None:
    """The join then belongs to the unchanged sink alone, under the name that its state has."""
    shared = {"paid": SINKS["paid"], "also": SINKS["paid"]}
    plan = upgrade(
        job(tmp_path, shared | {"also": f"{SINKS['paid']} WHERE p.paid > 5"}), recorded(job(tmp_path, shared))
    )
    assert sinks(plan) == {"main": ["paid"], "also": ["also"]}
    assert plan.changes.keys() == {"also"}


def test_a_changed_view_changes_all_who_use_it(tmp_path: Path) -> None:
    """A changed view changes exactly the sinks that use it."""
    plan = upgrade(job(tmp_path, over=20), recorded(job(tmp_path)))
    assert sinks(plan) == {"main": ["paid", "sums"], "large": ["large", "larger"]}
    assert plan.changes.keys() == {"large", "larger"}


@pytest.mark.parametrize("settings", ["shards: 16", "atomic: true"])
def test_what_concerns_a_query_as_a_whole_changes_all_its_sinks(tmp_path: Path, settings: str) -> None:
    """The old query is dropped with all its state, so the new query takes its name."""
    plan = upgrade(job(tmp_path, settings=settings), recorded(job(tmp_path)))
    assert sinks(plan) == {"main": list(SINKS)}
    assert (plan.stay, plan.left, plan.dropped) == (set(), {"main"}, {"main"})
    assert all(settings.partition(":")[0] in lines[0] for lines in plan.changes.values())


def test_state_stays_in_whatever_partitions_it_lies(tmp_path: Path) -> None:
    """State is kept while there are shards for all tasks; if more shards are needed, it is rebuilt."""
    before = recorded(job(tmp_path))
    plan = upgrade(job(tmp_path, settings="parallelism: 8"), before)
    assert (plan.stay, plan.changes) == ({"main"}, {})
    assert recorded(job(tmp_path, settings="parallelism: 8"), before)["main"] == before["main"]
    plan = upgrade(job(tmp_path, settings="parallelism: 12"), before)
    assert not plan.stay
    assert all(lines == ("shards: 8 -> 64",) for lines in plan.changes.values())


def test_sinks_come_and_go(tmp_path: Path) -> None:
    """A removed sink leaves the others unchanged, and a new sink does not count as a change of existing ones."""
    before = recorded(job(tmp_path, {name: SINKS[name] for name in ("paid", "sums")}))
    plan = upgrade(job(tmp_path, {name: SINKS[name] for name in ("sums", "large")}), before)
    assert sinks(plan) == {"main": ["sums"], "large": ["large"]}
    assert (plan.stay, plan.changes, plan.dropped) == ({"main"}, {}, set())


def test_nothing_stays_if_that_is_wished(tmp_path: Path) -> None:
    """With `keep=False` all sinks share one query again, and no checkpoint is kept."""
    before = recorded(job(tmp_path))
    apart = {"main": recorded_without(before["main"], "sums"), "sums": before["main"]}
    plan = upgrade(job(tmp_path), apart, keep=False)
    assert sinks(plan) == {"main": list(SINKS)}
    assert (plan.stay, plan.left, plan.dropped) == (set(), {"main", "sums"}, {"main", "sums"})


def recorded_without(before: Contents, sink: str) -> Contents:
    """Return the metadata of a checkpoint after a sink has left it."""
    return replace(before, sinks={name: facts for name, facts in before.sinks.items() if name != sink})


def test_a_plan_that_a_version_has_changed_is_told_from_a_query_that_has_changed(tmp_path: Path) -> None:
    """The two are distinguished by the job digest, which the checkpoint records together with the version."""
    now = job(tmp_path)
    (name, there), *_ = recorded(now).items()
    other = {**there.sinks["paid"], "join_1.kind": "left"}
    before = {name: replace(there, sinks={**there.sinks, "paid": other}, release="0.0.1")}
    changes = upgrade(now, before).changes
    assert changes["paid"] == (
        f"the query is unchanged, but planned differently by {there.release} than by 0.0.1",
        "join_1.kind: left -> inner",
    )
    differs = there.differs(before[name])
    assert differs[0].startswith("paid: the query is unchanged")
    assert differs[1:] == ["paid.join_1.kind: left -> inner"]
    asked_else = upgrade(
        job(tmp_path, {**SINKS, "paid": SINKS["paid"].replace("o.note", "o.id") + " WHERE o.id > 3"}), before
    )
    assert not any("planned differently" in line for line in asked_else.changes["paid"])


def test_a_checkpoint_of_a_version_that_noted_no_query_says_so(tmp_path: Path) -> None:
    """The message says that the query was not recorded, so the reader must know whether it has changed."""
    now = job(tmp_path)
    (name, there), *_ = recorded(now).items()
    old = replace(there, sinks={**there.sinks, "sums": {}}, release="", asked={})
    first, *_ = upgrade(now, {name: old}).changes["sums"]
    assert first.startswith("an earlier version wrote the checkpoint and did not record the query")


def test_white_space_comments_of_topics_and_other_views_ask_for_nothing_else(tmp_path: Path) -> None:
    """The digest of a sink covers its SQL, its views and its tables."""
    spaced = {name: sql.replace(" FROM", "  FROM") for name, sql in SINKS.items()}
    asked = [next(iter(recorded(each).values())).asked for each in (job(tmp_path), job(tmp_path, spaced))]
    assert asked[0] == asked[1]
    through_view = next(iter(recorded(job(tmp_path, over=11)).values())).asked
    assert {sink for sink in SINKS if through_view[sink] != asked[0][sink]} == {"large", "larger"}
