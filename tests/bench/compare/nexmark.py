"""Nexmark's events and queries: of 50 events 1 is a person, 3 are auctions and 46 are bids on auctions.

Bids, bidders and sellers are skewed as in Nexmark's generator. Half of the bids go to one hot auction among the latest
hundred, and three quarters come from one hot bidder; the same applies to sellers. Events are 1 ms apart and out of
order by up to 1 s.

The queries are those of `examples/nexmark` in SQL that both systems accept. `dateTime`, a function name in Flink, is
called `ts`. The file that q13 joins is a table here, with as many rows. Two queries are left out: q6, which Flink
cannot run, and q12, whose windows are of processing time, so that results cannot be compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tests.bench.compare.queries import Query
from tests.bench.compare.tables import TABLES, Changes
from tests.bench.compare.workload import Ids, times

Columns = dict[str, pa.Array]

_EVENTS, _AUCTIONS = 50, 3
_OF_EVENTS = {"person": 1, "auction": _AUCTIONS, "bid": _EVENTS - _AUCTIONS - 1}
_FIRST_ID = 1000
_HOT = 100
"""One of so many ids is hot."""
_BEHIND = {"auction": 100, "person": 1000}
"""The number of latest ids from which ids that are not hot are drawn."""
_CHANNELS = 10_000
_SIDE = 10_000
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)


def generate(tables: Sequence[str], rows: int, seed: int = 42) -> tuple[Changes, ...]:
    """Return about so many rows of these tables, from as many events as needed, and the side input."""
    rng = np.random.default_rng(seed)
    number = _shuffled(np.arange(rows * _EVENTS // sum(_OF_EVENTS.get(each, 0) for each in tables)), rng)
    epoch, place = number // _EVENTS, number % _EVENTS
    person, auction = place == 0, (place > 0) & (place <= _AUCTIONS)
    bid = ~(person | auction) if "bid" in tables else np.zeros(len(number), np.bool_)
    # The last person and auction that exist when an event happens.
    last_person = _FIRST_ID + epoch
    last_auction = _FIRST_ID + epoch * _AUCTIONS + np.clip(place - 1, 0, _AUCTIONS - 1)
    made = {
        "person": _people(rng, number[person], last_person[person]),
        "auction": _auctions(rng, number[auction], last_auction[auction], last_person[auction]),
        "bid": _bids(rng, number[bid], last_auction[bid], last_person[bid]),
        "side_input": {
            "id": pa.array(np.arange(_SIDE)),
            "word": _words(rng, _SIDE, 10),
            "ts": times(np.zeros(_SIDE, np.int64)),
        },
    }
    return tuple(Changes(each, made[each], np.zeros(len(made[each]["ts"]), np.bool_)) for each in tables)


def _people(rng: np.random.Generator, number: Ids, ids: Ids) -> Columns:
    count = len(number)
    return {
        "id": pa.array(ids),
        "name": _words(rng, count, 12),
        "emailAddress": _words(rng, count, 20),
        "creditCard": _words(rng, count, 19),
        "city": _one_of(rng, _CITIES, count),
        "state": _one_of(rng, _STATES, count),
        "ts": times(number),
        "extra": _words(rng, count, 100),
    }


def _auctions(rng: np.random.Generator, number: Ids, ids: Ids, last_person: Ids) -> Columns:
    count = len(number)
    first = _prices(rng, count)
    return {
        "id": pa.array(ids),
        "itemName": _words(rng, count, 20),
        "description": _words(rng, count, 100),
        "initialBid": pa.array(first),
        "reserve": pa.array(first + _prices(rng, count)),
        "ts": times(number),
        "expires": times(number + rng.integers(1_000, 20_000, count)),
        "seller": pa.array(_drawn(rng, last_person, "person", 0.75, 0)),
        "category": pa.array(10 + rng.integers(0, 5, count)),
        "extra": _words(rng, count, 200),
    }


def _bids(rng: np.random.Generator, number: Ids, last_auction: Ids, last_person: Ids) -> Columns:
    count = len(number)
    channel = np.where(rng.random(count) < 0.5, rng.integers(0, 4, count), rng.integers(4, _CHANNELS, count))
    names = ["Google", "Facebook", "Baidu", "Apple", *(f"channel-{each}" for each in range(4, _CHANNELS))]
    urls = [
        f"https://www.nexmark.com/{each % 97:03}/{each % 89:03}/{each % 83:03}/item.htm?query=1"
        + (f"&channel_id={each}" if each % 10 else "")
        for each in range(_CHANNELS)
    ]
    return {
        "auction": pa.array(_drawn(rng, last_auction, "auction", 0.5, 0)),
        "bidder": pa.array(_drawn(rng, last_person, "person", 0.75, 1)),
        "price": pa.array(_prices(rng, count)),
        "channel": pa.array(names).take(pa.array(channel)),
        "url": pa.array(urls).take(pa.array(channel)),
        "ts": times(number),
        "extra": _words(rng, count, 40),
    }


def _drawn(rng: np.random.Generator, last: Ids, what: str, hot: float, offset: int) -> Ids:
    """Return an id per event, at most the last existing one: a hot id, or one of the latest."""
    behind = last - (rng.random(len(last)) * np.minimum(last - _FIRST_ID + 1, _BEHIND[what])).astype(np.int64)
    hottest = last // _HOT * _HOT + offset
    drawn: Ids = np.where(rng.random(len(last)) < hot, hottest, behind)
    return drawn


def _prices(rng: np.random.Generator, count: int) -> Ids:
    return np.rint(10 ** (rng.random(count) * 6) * 100).astype(np.int64)


def _one_of(rng: np.random.Generator, words: tuple[str, ...], count: int) -> pa.Array:
    return pa.array(words).take(pa.array(rng.integers(0, len(words), count)))


def _words(rng: np.random.Generator, count: int, length: int) -> pa.Array:
    """Return random words out of a thousand."""
    letters = rng.integers(ord("a"), ord("z") + 1, (1000, length), np.uint8)
    return _one_of(rng, tuple(bytes(each).decode() for each in letters), count)


def _shuffled(numbers: Ids, rng: np.random.Generator) -> Ids:
    """Return the numbers, each moved by less than a thousand places."""
    return numbers[np.argsort(numbers + rng.random(len(numbers)) * 1000)]


_BIGINT, _STRING, _TIME = "BIGINT NOT NULL", "STRING NOT NULL", "TIMESTAMP(3) NOT NULL"
_BID = TABLES["bid"].columns
_BARE = {name: _BID[name] for name in ("auction", "bidder", "price", "ts", "extra")}
_DAY = "COALESCE(DATE_FORMAT(ts, 'yyyy-MM-dd'), '')"
_HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
_COUNTS = (
    f"SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime FROM {_HOP} "
    "GROUP BY auction, window_start, window_end"
)
_SOLD = "FROM auction AS a JOIN bid AS b ON a.id = b.auction WHERE b.ts BETWEEN a.ts AND a.expires"
_CHANNEL = "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"
_FOLDERS = (
    "SELECT auction, bidder, price, channel, SPLIT_PART(url, '/', 4) AS dir1, SPLIT_PART(url, '/', 5) AS dir2, "
    "SPLIT_PART(url, '/', 6) AS dir3 FROM bid"
)
_PRICES = {"min_price": "BIGINT", "max_price": "BIGINT", "avg_price": "DOUBLE", "sum_price": "BIGINT"}
_STATISTICS = (
    "COUNT(*) AS total_bids, COUNT(*) FILTER (WHERE price < 1000) AS rank1_bids, "
    "COUNT(DISTINCT bidder) AS total_bidders, COUNT(DISTINCT bidder) FILTER (WHERE price < 1000) AS rank1_bidders, "
    "COUNT(DISTINCT auction) AS total_auctions"
)
_OF_STATISTICS = dict.fromkeys(
    ("total_bids", "rank1_bids", "total_bidders", "rank1_bidders", "total_auctions"), _BIGINT
)


def _appended(name: str, sql: str, columns: dict[str, str], tables: tuple[str, ...] = ("bid",), **more: str) -> Query:
    """Return an insert-only query."""
    return Query(name, sql, tables, columns, (), mode="append", appended=True, **more)  # type: ignore[arg-type]


def _in_duckdb(table: str, slide: int, size: int) -> str:
    """Return a table's rows in DuckDB, each once per window."""
    first = f"TIME_BUCKET(INTERVAL '{slide} seconds', ts)"
    begins = f"[{first} - back * INTERVAL '{slide} seconds' FOR back IN RANGE({size // slide})]"
    return f"(SELECT *, UNNEST({begins}) + INTERVAL '{size} seconds' AS endtime FROM {table})"


NEXMARK = (
    _appended("q0", "SELECT auction, bidder, price, ts, extra FROM bid", _BARE),
    _appended(
        "q1",
        "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, ts, extra FROM bid",
        {**_BARE, "price": "DECIMAL(23, 3)"},
    ),
    _appended(
        "q2", "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0", {"auction": _BIGINT, "price": _BIGINT}
    ),
    _appended(
        "q3",
        "SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p ON a.seller = p.id "
        "WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')",
        {"name": _STRING, "city": _STRING, "state": _STRING, "id": _BIGINT},
        ("auction", "person"),
    ),
    Query(
        "q4",
        "SELECT category, AVG(CAST(highest AS DOUBLE)) AS average FROM "
        f"(SELECT MAX(b.price) AS highest, a.category {_SOLD} GROUP BY a.id, a.category) AS q GROUP BY category",
        ("auction", "bid"),
        {"category": _BIGINT, "average": "DOUBLE"},
        ("category",),
    ),
    _appended(
        "q5",
        f"SELECT b.auction, b.num, b.endtime FROM ({_COUNTS}) AS b JOIN (SELECT MAX(num) AS maxn, starttime, endtime "
        f"FROM ({_COUNTS}) AS each_auction GROUP BY starttime, endtime) AS most "
        "ON b.starttime = most.starttime AND b.endtime = most.endtime AND b.num >= most.maxn",
        {"auction": _BIGINT, "num": _BIGINT, "endtime": _TIME},
        closes="endtime",
        emit="final",
        oracle=f"SELECT auction, COUNT(*) AS num, endtime FROM {_in_duckdb('bid', 2, 10)} GROUP BY auction, endtime "
        "QUALIFY num = MAX(num) OVER (PARTITION BY endtime)",
    ),
    _appended(
        "q7",
        "SELECT b.auction, b.price, b.bidder, b.extra, m.endtime FROM bid AS b JOIN (SELECT MAX(price) AS maxprice, "
        f"window_end AS endtime FROM {_TUMBLE.format('bid')} GROUP BY window_start, window_end) AS m "
        "ON b.price = m.maxprice WHERE b.ts BETWEEN m.endtime - INTERVAL '10' SECOND AND m.endtime",
        {"auction": _BIGINT, "price": _BIGINT, "bidder": _BIGINT, "extra": _STRING, "endtime": _TIME},
        closes="endtime",
        emit="final",
        oracle="SELECT b.auction, b.price, b.bidder, b.extra, m.endtime FROM bid AS b JOIN (SELECT MAX(price) AS "
        f"maxprice, endtime FROM {_in_duckdb('bid', 10, 10)} GROUP BY endtime) AS m ON b.price = m.maxprice "
        "WHERE b.ts BETWEEN m.endtime - INTERVAL '10 seconds' AND m.endtime",
    ),
    _appended(
        "q8",
        "SELECT p.id, p.name, p.endtime FROM (SELECT id, name, window_start AS starttime, window_end AS endtime FROM "
        f"{_TUMBLE.format('person')} GROUP BY id, name, window_start, window_end) AS p JOIN "
        f"(SELECT seller, window_start AS starttime, window_end AS endtime FROM {_TUMBLE.format('auction')} "
        "GROUP BY seller, window_start, window_end) AS a "
        "ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime",
        {"id": _BIGINT, "name": _STRING, "endtime": _TIME},
        ("auction", "person"),
        closes="endtime",
        emit="final",
        oracle=f"SELECT DISTINCT p.id, p.name, p.endtime FROM {_in_duckdb('person', 10, 10)} AS p JOIN "
        f"{_in_duckdb('auction', 10, 10)} AS a ON p.id = a.seller AND p.endtime = a.endtime",
    ),
    Query(
        "q9",
        "SELECT id, itemName, description, initialBid, reserve, ts, expires, seller, category, extra, auction, "
        "bidder, price, bid_ts, bid_extra FROM (SELECT a.*, b.auction, b.bidder, b.price, b.ts AS "
        "bid_ts, b.extra AS bid_extra, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ts) "
        f"AS rownum {_SOLD}) WHERE rownum <= 1",
        ("auction", "bid"),
        {
            **TABLES["auction"].columns,
            "auction": _BIGINT,
            "bidder": _BIGINT,
            "price": _BIGINT,
            "bid_ts": _TIME,
            "bid_extra": _STRING,
        },
        ("id",),
    ),
    _appended(
        "q10",
        "SELECT auction, bidder, price, ts, extra, DATE_FORMAT(ts, 'yyyy-MM-dd') AS dt, "
        "DATE_FORMAT(ts, 'HH:mm') AS hm FROM bid",
        {**_BARE, "dt": "STRING", "hm": "STRING"},
    ),
    _appended(
        "q11",
        "SELECT bidder, COUNT(*) AS bid_count, SESSION_START(ts, INTERVAL '10' SECOND) AS starttime, "
        "SESSION_END(ts, INTERVAL '10' SECOND) AS endtime FROM bid "
        "GROUP BY bidder, SESSION(ts, INTERVAL '10' SECOND)",
        {"bidder": _BIGINT, "bid_count": _BIGINT, "starttime": _TIME, "endtime": _TIME},
        closes="endtime",
        emit="final",
        oracle="""
        WITH begun AS (
          SELECT *, COALESCE(ts - LAG(ts) OVER w > INTERVAL '10 seconds', TRUE) AS new
          FROM bid WINDOW w AS (PARTITION BY bidder ORDER BY ts)
        ), numbered AS (SELECT *, SUM(new::INT) OVER (PARTITION BY bidder ORDER BY ts) AS number FROM begun)
        SELECT bidder, COUNT(*) AS bid_count, MIN(ts) AS starttime,
               MAX(ts) + INTERVAL '10 seconds' AS endtime
        FROM numbered GROUP BY bidder, number
        """,
    ),
    _appended(
        "q13",
        "SELECT b.auction, b.bidder, b.price, b.ts, s.word FROM bid AS b "
        f"JOIN side_input AS s ON MOD(b.auction, CAST({_SIDE} AS BIGINT)) = s.id",
        {"auction": _BIGINT, "bidder": _BIGINT, "price": _BIGINT, "ts": _TIME, "word": _STRING},
        ("bid", "side_input"),
    ),
    _appended(
        "q14",
        "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, CASE WHEN HOUR(ts) >= 8 AND "
        "HOUR(ts) <= 18 THEN 'dayTime' WHEN HOUR(ts) <= 6 OR HOUR(ts) >= 20 THEN 'nightTime' "
        "ELSE 'otherTime' END AS bidTimeType, ts, extra, CHAR_LENGTH(extra) - "
        "CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts FROM bid WHERE 0.908 * price > 1000 AND 0.908 * price < 5000",
        {
            "auction": _BIGINT,
            "bidder": _BIGINT,
            "price": "DECIMAL(23, 3)",
            "bidTimeType": "STRING",
            "ts": _TIME,
            "extra": _STRING,
            "c_counts": "INT",
        },
    ),
    Query(
        "q15",
        f"SELECT {_DAY} AS day_, {_STATISTICS} FROM bid GROUP BY {_DAY}",
        ("bid",),
        {"day_": _STRING, **_OF_STATISTICS},
        ("day_",),
    ),
    Query(
        "q16",
        f"SELECT channel, {_DAY} AS day_, MAX(DATE_FORMAT(ts, 'HH:mm')) AS minute_, {_STATISTICS} FROM bid "
        f"GROUP BY channel, {_DAY}",
        ("bid",),
        {"channel": _STRING, "day_": _STRING, "minute_": "STRING", **_OF_STATISTICS},
        ("channel", "day_"),
    ),
    Query(
        "q17",
        f"SELECT auction, {_DAY} AS day_, COUNT(*) AS total_bids, COUNT(*) FILTER (WHERE price < 1000) AS rank1_bids, "
        "MIN(price) AS min_price, MAX(price) AS max_price, AVG(CAST(price AS DOUBLE)) AS avg_price, SUM(price) AS "
        f"sum_price FROM bid GROUP BY auction, {_DAY}",
        ("bid",),
        {"auction": _BIGINT, "day_": _STRING, "total_bids": _BIGINT, "rank1_bids": _BIGINT, **_PRICES},
        ("auction", "day_"),
    ),
    Query(
        "q18",
        "SELECT auction, bidder, price, channel, url, ts, extra FROM (SELECT *, ROW_NUMBER() OVER "
        "(PARTITION BY bidder, auction ORDER BY ts DESC) AS rank_number FROM bid) WHERE rank_number <= 1",
        ("bid",),
        dict(_BID),
        ("bidder", "auction"),
    ),
    Query(
        "q19",
        "SELECT auction, rank_number, bidder, price, channel, url, ts, extra FROM (SELECT *, ROW_NUMBER() OVER "
        "(PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid) WHERE rank_number <= 10",
        ("bid",),
        {"auction": _BIGINT, "rank_number": _BIGINT, **{name: _BID[name] for name in list(_BID)[1:]}},
        ("auction", "rank_number"),
        compared=("auction", "rank_number", "price"),
    ),
    _appended(
        "q20",
        "SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.ts AS bid_ts, b.extra AS bid_extra, "
        "a.itemName, a.description, a.initialBid, a.reserve, a.ts AS auction_ts, a.expires, a.seller, "
        "a.category, a.extra AS auction_extra FROM bid AS b JOIN auction AS a ON b.auction = a.id "
        "WHERE a.category = 10",
        {
            **{name: type_ for name, type_ in _BID.items() if name not in ("ts", "extra")},
            "bid_ts": _TIME,
            "bid_extra": _STRING,
            "itemName": _STRING,
            "description": _STRING,
            "initialBid": _BIGINT,
            "reserve": _BIGINT,
            "auction_ts": _TIME,
            "expires": _TIME,
            "seller": _BIGINT,
            "category": _BIGINT,
            "auction_extra": _STRING,
        },
        ("auction", "bid"),
    ),
    _appended(
        "q21",
        "SELECT auction, bidder, price, channel, CASE WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = "
        "'google' THEN '1' WHEN LOWER(channel) = 'facebook' THEN '2' WHEN LOWER(channel) = 'baidu' THEN '3' ELSE "
        f"{_CHANNEL} END AS channel_id FROM bid WHERE {_CHANNEL} <> '' OR LOWER(channel) IN ('apple', 'google', "
        "'facebook', 'baidu')",
        {"auction": _BIGINT, "bidder": _BIGINT, "price": _BIGINT, "channel": _STRING, "channel_id": "STRING"},
    ),
    _appended(
        "q22",
        _FOLDERS,
        {
            "auction": _BIGINT,
            "bidder": _BIGINT,
            "price": _BIGINT,
            "channel": _STRING,
            **dict.fromkeys(("dir1", "dir2", "dir3"), "STRING"),
        },
        flink_sql="SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) "
        "AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid",
        oracle=_FOLDERS,
    ),
)
