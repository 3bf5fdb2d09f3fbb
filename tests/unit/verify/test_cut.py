"""Which samples of the ends of topics lie between two batches, by the progress records around them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rowkind.service.kafka.offsets import Offset
from rowkind.service.kafka.progress import Progress
from rowkind.service.verify.cut import Sample, proven_sample

_TOPIC = "job.main.progress"


def _batches(
    partition: int, numbers: Sequence[int], checkpoint: str = "c", first: int = 0
) -> list[tuple[int, Progress]]:
    """Return a record per batch, at every other offset, because each transaction ends with a marker."""
    found = []
    for at, number in enumerate(numbers):
        extent = json.dumps(Offset({}, {}, {}, number, number + 1).to_json())
        found.append((first + 2 * at, Progress("job", "main", partition, checkpoint, number, extent=extent)))
    return found


def _sample(*written: int) -> Sample:
    return Sample({(_TOPIC, partition): end for partition, end in enumerate(written)}, {("results", 0): sum(written)})


def _proven(records: Sequence[list[tuple[int, Progress]]], *samples: Sample) -> Sample | None:
    return proven_sample({(_TOPIC, partition): each for partition, each in enumerate(records)}, samples)


def test_a_sample_between_two_batches_is_proven_by_the_next_batch() -> None:
    """The sample after batch 1 of both tasks is proven when a record of batch 2 is there, in any partition."""
    sample = _sample(4, 4)
    for records in (
        [_batches(0, [0, 1, 2]), _batches(1, [0, 1])],
        [_batches(0, [0, 1]), _batches(1, [0, 1, 2])],
        [_batches(0, [0, 1, 2, 3]), _batches(1, [0, 1, 2])],
    ):
        assert _proven(records, sample) == sample


def test_a_sample_is_not_proven_without_a_later_batch() -> None:
    """Without a record of batch 2, a task of batch 1 may not have committed yet."""
    assert _proven([_batches(0, [0, 1]), _batches(1, [0, 1])], _sample(4, 4)) is None


def test_a_sample_within_a_batch_is_not_proven() -> None:
    """A sample before the last task of batch 1, or after the first task of batch 2, has a part of a batch."""
    records = [_batches(0, [0, 1, 2]), _batches(1, [0, 1, 2])]
    assert _proven(records, _sample(4, 2)) is None
    assert _proven(records, _sample(2, 4)) is None
    assert _proven(records, _sample(4, 6)) is None
    assert _proven(records, _sample(6, 4)) is None


def test_the_last_proven_sample_is_taken() -> None:
    """Of several samples, the last one that is between two batches is the cut."""
    records = [_batches(0, [0, 1, 2]), _batches(1, [0, 1, 2])]
    samples = [_sample(2, 2), _sample(2, 4), _sample(4, 4), _sample(6, 4), _sample(6, 6)]
    assert _proven(records, *samples) == samples[2]


def test_a_task_without_rows_in_a_batch_has_no_record_of_it() -> None:
    """A partition that skips batches proves nothing and contradicts nothing."""
    assert _proven([_batches(0, [0, 1, 2]), _batches(1, [])], _sample(4, 0)) == _sample(4, 0)


def test_batches_of_another_checkpoint_do_not_count() -> None:
    """A new checkpoint counts its batches from 0, so greater numbers of the old checkpoint are no contradiction."""
    old = [_batches(partition, [40, 41], "old") for partition in (0, 1)]
    records = [old[0] + _batches(0, [0, 1], first=4), old[1] + _batches(1, [0, 1], first=4)]
    assert _proven(records, _sample(6, 6)) == _sample(6, 6)
    assert _proven(old, _sample(4, 4)) is None
    assert _proven(records, _sample(4, 4)) is None


def test_a_record_without_its_extent_proves_nothing() -> None:
    """A batch of an earlier release does not say which records of the sources it has read."""
    records = [[(offset, Progress("job", "main", 0, "c", number)) for offset, number in ((0, 0), (2, 1))]]
    assert _proven(records, _sample(2)) is None


def test_a_topic_without_records_has_no_proven_sample() -> None:
    """Before the first batch, there is nothing to prove."""
    assert _proven([[], []], _sample(0, 0)) is None
