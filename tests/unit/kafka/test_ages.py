"""Creation times of records, stored until their batch has ended."""

from __future__ import annotations

import numpy as np
import pytest

from rowkind.service.execute.metrics import parse
from rowkind.service.kafka.ages import ages
from rowkind.service.kafka.record import Made

NOW = 1_767_225_600.0


def test_an_age_is_kept_to_an_eighth_of_itself() -> None:
    """Ages from 0 to a year are accurate to an eighth; the time of a record from the future is kept exactly."""
    for seconds in (-5.0, 0.0, 0.001, 0.02, 0.3, 7.0, 60.0, 5_000.0, 86_400.0, 3e7):
        ((name, count),) = ages("t", made(NOW - seconds), NOW).items()
        metric, labels = parse(name)
        assert (metric, labels["table"], count) == ("rowkind_latency_seconds", "t", 1)
        assert NOW - int(labels["made"]) / 1000 == pytest.approx(seconds, rel=0.125, abs=0.0011)


def test_many_records_are_few_samples_and_none_is_lost() -> None:
    """A million records of one hour become fewer than 150 samples, and their counts add up to a million."""
    made_at = Made((1000 * (NOW - np.linspace(0, 3600, 62_500))).astype(np.int64), np.full(62_500, 16))
    found = ages("t", made_at, NOW)
    assert len(found) < 150
    assert sum(found.values()) == 1_000_000


def made(at: float) -> Made:
    """Return one record with this time."""
    return Made(np.array([round(at * 1000)]), np.array([1]))
