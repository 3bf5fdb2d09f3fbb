"""The generated events of the Nexmark example."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import pytest

from tests.examples.auctions import DELAY, Event, events, shuffled
from tests.examples.jobs import EXAMPLES

SEED, COUNT = 1, 300


def stored() -> str:
    """Return the content of the example's changes file."""
    return "".join(json.dumps(event) + "\n" for event in events(SEED, COUNT))


def test_the_stored_events_are_those_of_the_generator() -> None:
    """The stored changes file equals the output of `python -m tests.examples`."""
    assert (EXAMPLES / "nexmark" / "changes.jsonl").read_text() == stored()


def test_no_rank_over_the_events_has_ties() -> None:
    """Times are unique, and so are the prices of the bids on an auction, for any seed."""
    for seed in range(5):
        rows = [event["row"] for event in events(seed, 400) if event["table"] != "side_input"]
        bids = Counter((row["auction"], row["price"]) for row in rows if "bidder" in row)
        assert len({row["dateTime"] for row in rows}) == len(rows)
        assert max(bids.values()) == 1


@pytest.mark.parametrize("order", [events, shuffled])
def test_no_event_is_late(order: Callable[[int, int], Iterable[Event]]) -> None:
    """Some events are out of order, but by less than the delay of the watermark."""
    for seed in range(5):
        rows = [event["row"] for event in order(seed, 400) if event["table"] != "side_input"]
        times = [datetime.fromisoformat(row["dateTime"]) for row in rows]
        behind = [max(times[: place + 1]) - at for place, at in enumerate(times)]
        assert timedelta(0) < max(behind) < DELAY
