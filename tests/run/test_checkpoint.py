"""The notes in a checkpoint folder: whose plan it is, and whose turn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rowkind.service.job.load import load
from rowkind.service.kafka.progress import next_run
from rowkind.service.physical import PhysicalSink
from rowkind.service.plan.fingerprint import differences, fingerprint
from rowkind.service.plan.pipeline import plan
from rowkind.service.run.checkpoint import Checkpoint
from rowkind.service.run.errors import CheckpointFolderError, CheckpointMismatchError

FACTS = {"parallelism": "2", "join.kind": "left", "sink.key": "a"}

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
    """A folder that is not there yet."""
    return tmp_path / "job" / "sink"


@pytest.mark.spark
def test_a_checkpoint_is_claimed_again_by_the_same_plan(spark: SparkSession, folder: Path) -> None:
    """The second claim finds the first one's facts, and has a later name."""
    first, second = Checkpoint(spark, str(folder)), Checkpoint(spark, str(folder))
    first.claim(FACTS, reset=False)
    assert first.held()
    second.claim(FACTS, reset=False)
    assert second.run > first.run
    assert second.held()
    assert not first.held()
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) == [
        "rowkind.json",
        f"rowkind.run.{second.run}",
    ]


@pytest.mark.spark
def test_a_run_comes_after_the_last_one_that_left_a_trace_elsewhere(spark: SparkSession, folder: Path) -> None:
    """A fresh folder does not make a run an early one."""
    checkpoint = Checkpoint(spark, str(folder))
    checkpoint.claim(FACTS, reset=False, after="00000041-ffff")
    assert checkpoint.run.startswith("00000042-")


@pytest.mark.spark
def test_another_plan_is_refused_with_every_fact_that_differs(spark: SparkSession, folder: Path) -> None:
    """The message has both values of each, what to do, and nothing of what is equal."""
    Checkpoint(spark, str(folder)).claim(FACTS, reset=False)
    changed = {"parallelism": "4", "join.kind": "left", "sink.mode": "upsert"}
    with pytest.raises(CheckpointMismatchError) as refused:
        Checkpoint(spark, str(folder)).claim(changed, reset=False)
    assert refused.value.changed == (
        "parallelism: 2 -> 4",
        "sink.key: a -> absent",
        "sink.mode: absent -> upsert",
    )
    assert "--reset-state" in str(refused.value)


@pytest.mark.spark
def test_a_reset_deletes_all_and_takes_the_folder_from_whoever_has_it(spark: SparkSession, folder: Path) -> None:
    """State and offsets of the other plan are gone, and an earlier run sees that it was replaced."""
    earlier, later = Checkpoint(spark, str(folder)), Checkpoint(spark, str(folder))
    earlier.claim(FACTS, reset=False)
    (folder / "offsets").mkdir()
    later.claim({"parallelism": "4"}, reset=True)
    assert not (folder / "offsets").exists()
    assert later.run > earlier.run
    assert not earlier.held()
    Checkpoint(spark, str(folder)).claim({"parallelism": "4"}, reset=False)


@pytest.mark.spark
def test_a_folder_with_something_else_in_it_is_refused(spark: SparkSession, folder: Path) -> None:
    """Nothing is deleted or written where somebody keeps other things."""
    folder.mkdir(parents=True)
    (folder / "letters").touch()
    with pytest.raises(CheckpointMismatchError, match="something else"):
        Checkpoint(spark, str(folder)).claim(FACTS, reset=False)
    assert [path.name for path in folder.iterdir()] == ["letters"]


@pytest.mark.spark
def test_a_claim_that_was_cut_short_is_no_obstacle(spark: SparkSession, folder: Path) -> None:
    """The draft of a note, left by a process that was killed, is written anew."""
    folder.mkdir(parents=True)
    (folder / "rowkind.json.tmp").write_text('{"vers')
    checkpoint = Checkpoint(spark, str(folder))
    checkpoint.claim(FACTS, reset=False)
    assert checkpoint.held()
    Checkpoint(spark, str(folder)).claim(FACTS, reset=False)


@pytest.mark.spark
def test_a_folder_that_cannot_be_is_told_in_words(spark: SparkSession, tmp_path: Path) -> None:
    """A file stands where the folder should be made."""
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointFolderError, match="may make and write to"):
        Checkpoint(spark, str(tmp_path / "file" / "sink")).claim(FACTS, reset=False)


def test_later_runs_have_greater_names() -> None:
    """Also beyond nine, and after any of several."""
    first = next_run()
    names = [first]
    for _ in range(20):
        names.append(next_run(names[0], names[-1], ""))
    assert names == sorted(names)
    assert len(set(names)) == 21


def planned(tmp_path: Path, sql: str = SQL, ttl: str = "1d") -> PhysicalSink:
    """The plan of a job."""
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
    changed = differences(fingerprint(planned(tmp_path), 2), fingerprint(planned(tmp_path, sql), 2))
    assert any(fact in line.partition(":")[0] for line in changed), changed


def test_what_leaves_the_state_alone_leaves_the_fingerprint_alone(tmp_path: Path) -> None:
    """Layout of the text, names of tables in the query and the TTL may change; the number of shards may not."""
    before = fingerprint(planned(tmp_path), 2)
    spelled = "select  o.id, o.amount, p.paid from orders as o inner join payments p on p.order_id = o.id"
    assert fingerprint(planned(tmp_path, spelled), 2) == before
    assert fingerprint(planned(tmp_path, ttl="2d"), 2) == before
    assert differences(before, fingerprint(planned(tmp_path), 4)) == ["parallelism: 2 -> 4"]
    assert differences(before, fingerprint(replace(planned(tmp_path), mode="upsert"), 2)) == [
        "sink.mode: retract -> upsert"
    ]
