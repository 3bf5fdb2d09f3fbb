"""The arithmetic on offsets: the logged offset, the size of a batch, and its division into tasks."""

from __future__ import annotations

import json
import random

import pytest

from rowkind.service.kafka.offsets import Offset, Range, admit, divide


@pytest.mark.parametrize(("number", "now"), [(-1, 0), (0, 5), (7, 1_800_000_000_000)])
def test_an_offset_survives_json_with_all_of_its_batch(number: int, now: int) -> None:
    """The offset that Spark logs contains all that a restart needs: positions, topic IDs, batch number and time."""
    at, ids = {("a", 0): 5, ("a", 10): 0, ("b", 1): 7}, {"a": "x", "b": "y", "c": "z"}
    offset = Offset(at, ids, {("a", 0): 2}, number, now)
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    assert offset.is_cut_as(Offset(at, ids, {("a", 0): 2}))
    assert not offset.is_cut_as(Offset(at, ids, {("a", 0): 3}, number, now))


@pytest.mark.parametrize("seed", range(30))
def test_a_batch_takes_no_more_than_it_may_and_from_every_partition_that_lags(seed: int) -> None:
    """A batch takes everything if it fits, and else at most the limit plus one row per partition."""
    chance = random.Random(seed)
    begin = {("t", number): chance.randrange(1000) for number in range(chance.randrange(1, 9))}
    end = {at: start + chance.choice((0, 1, chance.randrange(5000))) for at, start in begin.items()}
    limit = chance.randrange(1, 8000)
    taken = admit(begin, end, limit)
    rows = sum(taken[at] - begin[at] for at in begin)
    assert all(begin[at] <= taken[at] <= end[at] for at in begin), f"seed {seed}"
    assert all(taken[at] > begin[at] for at in begin if end[at] > begin[at]), f"seed {seed}"
    assert rows <= limit + len(begin), f"seed {seed}"
    if sum(end[at] - begin[at] for at in begin) <= limit:
        assert taken == end, f"seed {seed}"


@pytest.mark.parametrize("seed", range(30))
def test_tasks_cover_a_batch_exactly_and_evenly(seed: int) -> None:
    """Every offset is in exactly one task's range, and no task has more than its equal share."""
    chance = random.Random(seed)
    begin = {("t", number): chance.randrange(100) for number in range(chance.randrange(1, 6))}
    end = {at: start + chance.choice((0, chance.randrange(300))) for at, start in begin.items()}
    tasks = divide(begin, end, tasks=chance.randrange(1, 5), rows_per_task=chance.randrange(1, 100))
    covered = [(part.topic, part.partition, offset) for task in tasks for part in task for offset in _offsets(part)]
    wanted = [(*at, offset) for at in begin for offset in range(begin[at], end[at])]
    assert sorted(covered) == sorted(wanted), f"seed {seed}"
    sizes = [sum(len(part) for part in task) for task in tasks]
    assert not sizes or max(sizes) <= -(-sum(sizes) // len(sizes)), f"seed {seed}"


def test_a_small_batch_takes_one_task() -> None:
    """A second task is used only if each task gets at least `rows_per_task` rows."""
    begin, end = {("t", 0): 0, ("t", 1): 0}, {("t", 0): 100, ("t", 1): 100}
    assert len(divide(begin, end, tasks=4, rows_per_task=1000)) == 1
    assert len(divide(begin, end, tasks=4, rows_per_task=100)) == 2
    assert divide(begin, begin, tasks=4, rows_per_task=100) == []


@pytest.mark.parametrize("seed", range(30))
def test_partitions_that_are_to_stay_whole_are_shared_out(seed: int) -> None:
    """With `whole`, each partition's range is in one task, every task has a range, and the tasks are balanced."""
    chance = random.Random(seed)
    begin = {("t", number): chance.randrange(100) for number in range(chance.randrange(1, 8))}
    end = {at: start + chance.choice((0, chance.randrange(300))) for at, start in begin.items()}
    tasks = divide(begin, end, tasks=chance.randrange(1, 5), rows_per_task=chance.randrange(1, 100), whole=True)
    assert {part for task in tasks for part in task} == {
        Range(*at, begin[at], end[at]) for at in begin if end[at] > begin[at]
    }, f"seed {seed}"
    assert all(tasks), f"seed {seed}"
    assert sum(map(len, tasks)) == len({part.partition for task in tasks for part in task}), f"seed {seed}"
    sizes = [sum(map(len, task)) for task in tasks]
    for task, size in zip(tasks, sizes, strict=True):
        # The fullest task got its last partition when it was the emptiest.
        assert size - min(map(len, task)) <= min(sizes), f"seed {seed}"


def _offsets(part: Range) -> range:
    return range(part.start, part.end)
