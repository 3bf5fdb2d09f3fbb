"""Checkpoint metadata: which plans and which run own a checkpoint folder, and which sinks share one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rowkind.service.checkpoint.checkpoint import Checkpoint
from rowkind.service.checkpoint.checkpoint import queries as recorded
from rowkind.service.checkpoint.checkpoint_metadata import Contents
from rowkind.service.job.load import load
from rowkind.service.kafka.progress import next_run
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.fingerprint import Fingerprint, differences, fingerprint
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.errors import CheckpointFolderError, CheckpointMismatchError, CheckpointTornError
from rowkind.service.query.queries import queries

PAID = {"join.kind": "left", "sink.key": "a"}
CONTENTS = Contents({"paid": PAID, "liked": {"sink.mode": "append"}}, shards=2, parallelism=2, levels=1)

JOB = """
job: shop
ttl: {ttl}
tables:
  orders: {{mode: retract, columns: {{id: BIGINT NOT NULL, amount: INT, note: STRING}}, primary_key: id}}
  payments: {{mode: append, columns: {{order_id: BIGINT, paid: INT}}}}
sinks:
  paid: {{mode: retract, sql: "{sql}"}}
"""
SQL = "SELECT o.id, o.amount, p.paid FROM orders o JOIN payments p ON o.id = p.order_id"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "job" / "sink"


@pytest.mark.spark
def test_a_checkpoint_is_claimed_again_by_the_same_plan(spark: SparkSession, folder: Path) -> None:
    """The second claim finds the metadata of the first one, and its run has a later name."""
    first, second = Checkpoint(spark, str(folder)), Checkpoint(spark, str(folder))
    first.claim(CONTENTS)
    assert first.held()
    second.claim(CONTENTS)
    assert second.run > first.run
    assert second.held()
    assert not first.held()
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) == [
        "rowkind.json",
        f"rowkind.run.{second.run}",
    ]


@pytest.mark.spark
def test_a_run_comes_after_the_last_one_that_left_a_trace_elsewhere(spark: SparkSession, folder: Path) -> None:
    """A run that claims a new folder still gets a later name than the last run known elsewhere."""
    checkpoint = Checkpoint(spark, str(folder))
    checkpoint.claim(CONTENTS, after="00000041-ffff")
    assert checkpoint.run.startswith("00000042-")


@pytest.mark.spark
def test_another_plan_is_refused_with_every_fact_that_differs(spark: SparkSession, folder: Path) -> None:
    """The message has both values of each fact that differs, the remedy, and no fact that is equal."""
    Checkpoint(spark, str(folder)).claim(CONTENTS)
    changed = Contents(
        {"paid": {"join.kind": "left", "sink.mode": "upsert"}}, shards=4, parallelism=4, levels=1, atomic=True
    )
    with pytest.raises(CheckpointMismatchError) as refused:
        Checkpoint(spark, str(folder)).claim(changed)
    assert refused.value.changed == (
        "atomic: false -> true",
        "paid.sink.key: a -> absent",
        "paid.sink.mode: absent -> upsert",
        "shards: 2 -> 4",
    )
    assert "--upgrade" in str(refused.value)


@pytest.mark.spark
def test_a_folder_that_is_deleted_is_taken_from_whoever_has_it(spark: SparkSession, folder: Path) -> None:
    """State and offsets of the other plan are deleted, and the earlier run sees that it was replaced."""
    earlier, later = Checkpoint(spark, str(folder)), Checkpoint(spark, str(folder))
    earlier.claim(CONTENTS)
    (folder / "offsets").mkdir()
    other = Contents({"new": {}}, shards=4, parallelism=4, levels=0)
    later.delete()
    assert not earlier.held()
    later.claim(other, after=earlier.run)
    assert not (folder / "offsets").exists()
    assert later.run > earlier.run
    assert not earlier.held()
    Checkpoint(spark, str(folder)).claim(other)
    assert recorded(spark, str(folder.parent)) == {"sink": other}


@pytest.mark.spark
def test_a_folder_with_something_else_in_it_is_refused(spark: SparkSession, folder: Path) -> None:
    """Nothing is deleted from or written to a folder that holds other files."""
    folder.mkdir(parents=True)
    (folder / "letters").touch()
    with pytest.raises(CheckpointMismatchError, match="do not belong to a checkpoint"):
        Checkpoint(spark, str(folder)).claim(CONTENTS)
    assert [path.name for path in folder.iterdir()] == ["letters"]


@pytest.mark.spark
def test_a_claim_that_was_cut_short_is_no_obstacle(spark: SparkSession, folder: Path) -> None:
    """A draft of the metadata, left by a process that was killed, is overwritten."""
    folder.mkdir(parents=True)
    (folder / "rowkind.json.tmp").write_text('{"vers')
    checkpoint = Checkpoint(spark, str(folder))
    checkpoint.claim(CONTENTS)
    assert checkpoint.held()
    Checkpoint(spark, str(folder)).claim(CONTENTS)


@pytest.mark.spark
def test_the_draft_of_a_run_that_was_killed_counts(spark: SparkSession, folder: Path) -> None:
    """Between the removal of the old metadata and the naming of the new, only the draft exists, and it is complete."""
    Checkpoint(spark, str(folder)).claim(CONTENTS)
    (folder / "offsets").mkdir()
    (folder / "rowkind.json").rename(folder / "rowkind.json.tmp")
    assert recorded(spark, str(folder.parent)) == {"sink": CONTENTS}
    with pytest.raises(CheckpointMismatchError, match="shards: 2 -> 4"):
        Checkpoint(spark, str(folder)).claim(replace(CONTENTS, shards=4))
    fewer = replace(CONTENTS, sinks={"paid": PAID})
    assert Checkpoint(spark, str(folder)).claim(fewer) == fewer
    assert recorded(spark, str(folder.parent)) == {"sink": fewer}


@pytest.mark.spark
def test_sinks_may_leave_before_the_folder_is_claimed(spark: SparkSession, folder: Path) -> None:
    """No sink is ever in two checkpoints, at whatever moment a run is killed."""
    Checkpoint(spark, str(folder)).claim(CONTENTS)
    Checkpoint(spark, str(folder)).keep({"paid"})
    assert recorded(spark, str(folder.parent)) == {"sink": replace(CONTENTS, sinks={"paid": PAID})}


@pytest.mark.spark
def test_a_sink_that_is_gone_leaves_the_others_what_they_have(spark: SparkSession, folder: Path) -> None:
    """The number of stages and the shuffle stay at every later start, because Spark's own files depend on them."""
    Checkpoint(spark, str(folder)).claim(replace(CONTENTS, levels=3, exchange=True))
    left = Contents({"liked": CONTENTS.sinks["liked"]}, shards=2, parallelism=2, levels=0)
    for _ in range(2):
        kept = Checkpoint(spark, str(folder)).claim(left)
        assert kept == replace(left, levels=3, exchange=True)
        assert recorded(spark, str(folder.parent)) == {"sink": kept}
    with pytest.raises(CheckpointMismatchError, match=r"liked\.sink\.mode: append -> upsert"):
        Checkpoint(spark, str(folder)).claim(replace(left, sinks={"liked": {"sink.mode": "upsert"}}))


@pytest.mark.spark
def test_what_else_lies_beside_the_checkpoints_is_none(spark: SparkSession, folder: Path) -> None:
    """Other folders and files are ignored, and without a folder there is no query."""
    assert recorded(spark, str(folder.parent)) == {}
    Checkpoint(spark, str(folder)).claim(CONTENTS)
    (folder.parent / "notes").mkdir()
    (folder.parent / "notes" / "letters").touch()
    (folder.parent / "README").touch()
    assert recorded(spark, str(folder.parent)) == {"sink": CONTENTS}


@pytest.mark.spark
def test_a_checkpoint_whose_note_was_torn_is_refused_and_known(spark: SparkSession, folder: Path) -> None:
    """The folder of a damaged checkpoint may be dropped, unlike a folder with other files."""
    checkpoint = Checkpoint(spark, str(folder))
    assert not checkpoint.torn()
    checkpoint.claim(CONTENTS)
    (folder / "offsets").mkdir()
    assert not checkpoint.torn()
    (folder / "rowkind.json").write_text("{")
    assert checkpoint.torn()
    with pytest.raises(CheckpointTornError, match=r"rowkind.json is missing or damaged"):
        checkpoint.claim(CONTENTS)


@pytest.mark.spark
def test_a_folder_that_cannot_be_is_told_in_words(spark: SparkSession, tmp_path: Path) -> None:
    """If a file is in the way of the folder, the message says so."""
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointFolderError, match="can create and write"):
        Checkpoint(spark, str(tmp_path / "file" / "sink")).claim(CONTENTS)


def test_later_runs_have_greater_names() -> None:
    """Names of runs grow beyond nine, and after any of several earlier runs."""
    first = next_run()
    names = [first]
    for _ in range(20):
        names.append(next_run(names[0], names[-1], ""))
    assert names == sorted(names)
    assert len(set(names)) == 21


SEVERAL = """
job: shop
tables:
  orders: {{mode: append, columns: {{id: BIGINT NOT NULL}}}}
sinks:
{sinks}
"""


def divided(tmp_path: Path, sinks: Mapping[str, bool], before: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the sinks of each query of a job; `sinks` says for each whether it is isolated."""
    lines = [
        f"  {name}: {{mode: append, sql: SELECT id FROM orders, isolated: {alone}}}" for name, alone in sinks.items()
    ]
    file = tmp_path / "job.yaml"
    file.write_text(SEVERAL.format(sinks="\n".join(lines)))
    return queries(load(file, {}), before)


@pytest.mark.parametrize(
    ("sinks", "before", "wanted"),
    [
        ("a b c", {}, {"main": "a b c"}),
        ("a B c", {}, {"main": "a c", "B": "B"}),
        ("A B", {}, {"A": "A", "B": "B"}),
        ("c a b d", {"main": "a b"}, {"main": "a b", "c": "c d"}),
        ("a b c d", {"main": "a", "b": "b c"}, {"main": "a", "b": "b c", "d": "d"}),
        ("a", {"main": "a b", "c": "c"}, {"main": "a"}),
        ("a C", {"main": "a"}, {"main": "a", "C": "C"}),
        ("A b", {"main": "A b"}, {"main": "A b"}),
        ("b c", {"main": "a", "b": "d"}, {"b-2": "b c"}),
        ("main b", {"main": "b"}, {"main-2": "main", "main": "b"}),
        ("MAIN b", {}, {"MAIN": "MAIN", "main": "b"}),
    ],
    ids=[
        "all in one",
        "isolated",
        "all isolated",
        "added",
        "added again",
        "gone",
        "added and isolated",
        "isolated afterwards",
        "a name that is taken",
        "a sink called main",
        "an isolated one called nearly so",
    ],
)
def test_sinks_share_a_query_unless_they_are_isolated_or_came_later(
    tmp_path: Path, sinks: str, before: Mapping[str, str], wanted: Mapping[str, str]
) -> None:
    """A sink with a checkpoint keeps it; other isolated sinks (in capitals) run alone, and the rest share a query."""
    recorded_before = {query: names.split() for query, names in before.items()}
    found = divided(tmp_path, {name: name.isupper() for name in sinks.split()}, recorded_before)
    assert {query: " ".join(names) for query, names in found.items()} == wanted


def planned(tmp_path: Path, sql: str = SQL, ttl: str = "1d") -> PhysicalSink:
    """Return the plan of a job."""
    file = tmp_path / "job.yaml"
    file.write_text(JOB.format(sql=sql, ttl=ttl))
    return plan(load(file, {}), "paid")


@pytest.mark.parametrize(
    ("sql", "fact"),
    [
        (SQL.replace("JOIN", "LEFT JOIN"), "kind"),
        (SQL.replace("o.amount", "o.note"), "columns"),
        (SQL + " AND o.amount > p.paid", "condition"),
        (SQL + " WHERE o.amount > 5", "filter"),
        (SQL.replace("o.id = p.order_id", "o.amount = p.order_id"), "key"),
    ],
    ids=["kind", "columns", "condition", "filter", "key"],
)
def test_what_changes_the_state_changes_the_fingerprint(tmp_path: Path, sql: str, fact: str) -> None:
    """Each such change of the query is named by at least one fact."""
    changed = differences(fingerprint(planned(tmp_path)), fingerprint(planned(tmp_path, sql)))
    assert any(fact in line.partition(":")[0] for line in changed), changed


def test_what_leaves_the_state_alone_leaves_the_fingerprint_alone(tmp_path: Path) -> None:
    """Formatting, table aliases and the TTL do not change the fingerprint; the mode of the sink does."""
    before = fingerprint(planned(tmp_path))
    spelled = "select  o.id, o.amount, p.paid from orders as o inner join payments p on p.order_id = o.id"
    assert fingerprint(planned(tmp_path, spelled)) == before
    assert fingerprint(planned(tmp_path, ttl="2d")) == before
    assert differences(before, fingerprint(replace(planned(tmp_path), mode="upsert"))) == [
        "sink.mode: retract -> upsert"
    ]


def test_a_policy_for_rows_that_fail_may_be_said_and_not_be_changed(tmp_path: Path) -> None:
    """A policy may be added to a query that had none, because no row has failed yet; changing it alters the state."""
    computing = SQL.replace("o.amount", "1 / o.amount AS share")

    def facts(policy: str) -> Fingerprint:
        return fingerprint(planned(tmp_path, computing, ttl=f"1d\non_error: {policy}\ndead_letters: {{topic: dead}}"))

    assert differences(facts("fail"), facts("dead_letter")) == []
    (changed,) = differences(facts("dead_letter"), facts("null"))
    assert changed.endswith("on_error: dead_letter -> null")
