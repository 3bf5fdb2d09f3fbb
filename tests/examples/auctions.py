"""Events of Nexmark's auction site: people, the auctions that they open, and bids.

The events follow the benchmark's generator (Tucker et al., "NEXMark: A Benchmark for Queries over Data Streams"), with
a greater share of people and auctions because there are few events. Most bids are for the newest auctions, and most
auctions have few sellers. Every event has a unique time, and no two bids on one auction have the same price, so no rank
has ties.

A minute with one event per second is followed by hours without events, so that a few hundred events are in many windows
of ten seconds and on several days. They are out of order by less than the delay of the example's watermarks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

Event = dict[str, Any]

DELAY = timedelta(seconds=4)
"""The greatest delay of an event compared with other ones."""

_START = datetime(2026, 3, 1, 5, 0, 3, tzinfo=UTC)
_MINUTE, _PAUSE = 60, timedelta(hours=7)
_CITIES = (("Phoenix", "AZ"), ("San Francisco", "CA"), ("Boise", "ID"), ("Portland", "OR"), ("Bend", "OR"))
_FIRST, _LAST = ("Peter", "Paul", "Kate", "Sarah", "Vicky"), ("Shultz", "Abrams", "Spencer", "Smith", "Noris")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple", "channel-17", "channel-23")
_FIRST_ID = 1100


def events(seed: int, count: int) -> Iterator[Event]:
    """Yield the given number of events as lines of a changes file, after the rows of the side input of q13."""
    rng = random.Random(seed)
    yield from (_change("side_input", {"key": _FIRST_ID + key, "value": _letters(rng)}) for key in range(0, 90, 2))
    prices: dict[int, set[int]] = {}
    taken: set[datetime] = set()
    people = auctions = 0
    for number in range(count):
        at = _time(rng, number, taken)
        kind = number % 20
        if kind in (0, 1) or people == 0:
            yield _change("person", _person(rng, _FIRST_ID + people, at))
            people += 1
        elif kind < 6 or auctions == 0:
            seller = _FIRST_ID + (rng.randrange(people) if rng.random() < 0.4 else max(0, people - 2))
            yield _change("auction", _auction(rng, _FIRST_ID + auctions, seller, at))
            auctions += 1
        else:
            newest = max(0, auctions - 4)
            auction = _FIRST_ID + (rng.randrange(newest, auctions) if rng.random() < 0.7 else rng.randrange(auctions))
            price = _price(rng, prices.setdefault(auction, set()))
            yield _change("bid", _bid(rng, auction, _FIRST_ID + rng.randrange(people), price, at))


def shuffled(seed: int, count: int) -> list[Event]:
    """Return the events in another order, in which none is later than the delay."""
    rng = random.Random(seed)
    first = datetime.min.replace(tzinfo=UTC)

    def place(event: Event) -> datetime:
        at = event["row"].get("dateTime")
        return first if at is None else datetime.fromisoformat(at) + rng.random() * DELAY

    return sorted(events(seed, count), key=place)


def _time(rng: random.Random, number: int, taken: set[datetime]) -> datetime:
    """Return the time of an event, up to three seconds before its turn."""
    turn = _START + number // _MINUTE * _PAUSE + timedelta(seconds=number % _MINUTE)
    while (at := turn - timedelta(milliseconds=rng.randrange(3_000))) in taken:
        pass
    taken.add(at)
    return at


def _change(table: str, row: Event) -> Event:
    return {"table": table, "op": "+I", "row": row}


def _person(rng: random.Random, number: int, at: datetime) -> Event:
    first, last = rng.choice(_FIRST), rng.choice(_LAST)
    city, state = rng.choice(_CITIES)
    return {
        "id": number,
        "name": f"{first} {last}",
        "emailAddress": f"{first}.{last}@example.com".lower(),
        "creditCard": " ".join(f"{rng.randrange(10_000):04}" for _ in range(4)),
        "city": city,
        "state": state,
        "dateTime": _shown(at),
        "extra": _letters(rng),
    }


def _auction(rng: random.Random, number: int, seller: int, at: datetime) -> Event:
    initial = rng.randrange(100, 2000)
    open_ = timedelta(seconds=rng.randrange(10, 60)) if rng.random() < 0.5 else timedelta(minutes=rng.randrange(1200))
    return {
        "id": number,
        "itemName": f"item {number}",
        "description": _letters(rng),
        "initialBid": initial,
        "reserve": initial + rng.randrange(1000),
        "dateTime": _shown(at),
        "expires": _shown(at + open_),
        "seller": seller,
        "category": rng.randrange(10, 15),
        "extra": _letters(rng),
    }


def _bid(rng: random.Random, auction: int, bidder: int, price: int, at: datetime) -> Event:
    channel = rng.choice(_CHANNELS)
    query = f"?query=1&channel_id={channel[8:]}" if channel.startswith("channel-") else ""
    return {
        "auction": auction,
        "bidder": bidder,
        "price": price,
        "channel": channel,
        "url": f"https://www.nexmark.com/{_letters(rng, 3)}/{_letters(rng, 3)}/{_letters(rng, 3)}/item.htm{query}",
        "dateTime": _shown(at),
        "extra": _letters(rng),
    }


def _price(rng: random.Random, taken: set[int]) -> int:
    while (price := round(10 ** (rng.random() * 2 + 2))) in taken:
        pass
    taken.add(price)
    return price


def _letters(rng: random.Random, count: int = 6) -> str:
    return "".join(rng.choice("abcde") for _ in range(count))


def _shown(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
