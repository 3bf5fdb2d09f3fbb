"""The time line of a job's incidents."""

from __future__ import annotations

from rowkind.service.monitoring.timeline import DAY_SECONDS, Timeline

NOON = 1_767_268_800.0


def test_an_incident_has_a_beginning_and_an_end() -> None:
    """A span is open until it ends, and beginning it again changes nothing."""
    line = Timeline()
    line.begin("outage", "", "Kafka does not answer", NOON)
    line.begin("outage", "", "Kafka does not answer", NOON + 5)
    (span,) = line.latest(NOON + 9)
    assert (span.began, span.ended) == (NOON, None)
    line.end("restart", "", NOON + 10)
    line.end("outage", "", NOON + 30)
    line.end("outage", "", NOON + 50)
    assert [each.ended for each in line.latest(NOON + 60)] == [NOON + 30]


def test_restarts_in_quick_succession_are_one_incident() -> None:
    """An incident that recurs within a minute continues the span before, and is counted."""
    line = Timeline()
    for at in (0, 20, 40, 500):
        line.begin("restart", "main", "the registry does not answer", NOON + at)
        line.end("restart", "main", NOON + at + 5)
    spans = line.latest(NOON + 600)
    assert [(each.began - NOON, each.ended and each.ended - NOON, each.times) for each in spans] == [
        (0, 45, 3),
        (500, 505, 1),
    ]


def test_a_warning_ends_alone_and_old_incidents_are_forgotten() -> None:
    """Of several open spans only the named one ends, and a day later the time line has only what lasts."""
    line = Timeline()
    line.begin("warning", "", "orders", NOON)
    line.begin("warning", "", "payments", NOON)
    line.end("warning", "", NOON + 1, "orders")
    line.mark("rebuild", "main", "a topic has lost records", NOON)
    assert [each.what for each in line.latest(NOON + 2 + DAY_SECONDS)] == ["payments"]


def test_the_time_line_is_bounded() -> None:
    """A job that has an incident every two minutes for a week keeps 200 of them, among them one that has not ended."""
    line = Timeline()
    line.begin("warning", "", "orders", NOON)
    for number in range(5_000):
        line.mark("rebuild", "main", "a topic has lost records", NOON + 120 * number)
    first, *others = line.latest(NOON)
    assert (first.what, first.ended) == ("orders", None)
    assert len(others) == 199
