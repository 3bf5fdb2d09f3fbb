"""Waits for external systems: log lines, status and metrics."""

from __future__ import annotations

import logging

import pytest

from rowkind.avro.errors import RegistryUnreachableError
from rowkind.service.machine.signals import AskedToStop
from rowkind.service.monitoring.waiting import Waiting, answered
from tests.clock import Clock


@pytest.fixture
def clock() -> Clock:
    """A clock that the test sets."""
    return Clock(1000.0)


@pytest.fixture
def waiting(clock: Clock) -> Waiting:
    """A `Waiting` without a wait."""
    return Waiting(clock)


def test_a_wait_is_told_after_five_seconds_and_every_thirty(
    waiting: Waiting, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A wait is logged after about five seconds, then every 30 s and at its end; shorter waits are not logged."""
    caplog.set_level(logging.INFO, "rowkind")
    words = []
    waiting.before = lambda: words.append("before")
    waiting.begin("registry", "the registry at x", why="HTTP 429")
    for _ in range(80):
        clock.now += 0.5
        waiting.look()
    waiting.end("registry")
    assert [record.message for record in caplog.records] == [
        "waiting for the registry at x, for 4 s: HTTP 429",
        "waiting for the registry at x, for 34 s: HTTP 429",
        "no longer waiting for the registry at x, after 40 s",
    ]
    assert words == ["before"]
    caplog.clear()
    with waiting.on("kafka", "Kafka at y"):
        clock.now += 4
        waiting.look()
    assert not caplog.records


def test_a_wait_inside_of_another_for_the_same_is_one(waiting: Waiting, clock: Clock) -> None:
    """Nested waits for the same system count as one, from the begin of the outer one to its end."""
    with waiting.on("kafka", "Kafka at y"):
        clock.now += 3
        with waiting.on("kafka", "Kafka at y"):
            clock.now += 3
        assert waiting.seconds("kafka") == 6
        assert waiting.said() == ["waiting for Kafka at y, for 6 s"]
    assert waiting.seconds("kafka") == 0
    assert waiting.said() == []


def test_what_has_lasted_when_it_becomes_known_counts(waiting: Waiting) -> None:
    """A wait that is reported late counts from its start."""
    waiting.begin("registry", "the registry at x", seconds=7)
    waiting.begin("registry", "the registry at x", seconds=1, why="it hangs")
    assert waiting.seconds("registry") == 7
    assert waiting.said() == ["waiting for the registry at x, for 7 s: it hangs"]


def test_a_registry_is_asked_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry is retried until it answers, but not if nothing listens, on a stop request, or after the limit."""
    monkeypatch.setattr("rowkind.service.monitoring.waiting._RETRY_SECONDS", 0)
    errors = [RegistryUnreachableError("hangs", listens=True)] * 3

    def ask() -> str:
        if errors:
            raise errors.pop()
        return "answer"

    assert answered(ask, AskedToStop(), 60) == "answer"
    for asked, seconds, listens in ((AskedToStop(), 60, False), (AskedToStop(1), 60, True), (AskedToStop(), -1, True)):
        errors.append(RegistryUnreachableError("once", listens=listens))
        with pytest.raises(RegistryUnreachableError, match="once"):
            answered(ask, asked, seconds)
