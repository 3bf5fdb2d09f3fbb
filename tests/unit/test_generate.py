"""Generated changes: a valid changelog, with the shares that were asked for."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import islice

import pytest

from rowkind.avro.json_rows import check_row, encode
from rowkind.avro.schema import Record
from rowkind.operators.changelog import ChangelogMode
from rowkind.service.client.generate import ChangeGenerator, Composition, GeneratedChange

RECORD = Record.of(
    {
        "id": "BIGINT NOT NULL",
        "flag": "BOOLEAN",
        "name": "STRING",
        "code": "BINARY",
        "price": "DECIMAL(10,2)",
        "small": "DECIMAL(2,2)",
        "score": "DOUBLE",
        "ratio": "FLOAT",
        "count": "INT",
        "day": "DATE",
        "hour": "TIME",
        "at": "TIMESTAMP NOT NULL",
        "local": "TIMESTAMP_NTZ",
        "tags": "ARRAY<STRING>",
        "sizes": "MAP<STRING, INT>",
        "place": "STRUCT<x: INT, y: STRING>",
    }
)
COUNT = 4_000
USUAL = Composition()


def made(mode: ChangelogMode, shares: Composition = USUAL, seed: int = 0) -> list[GeneratedChange]:
    """Return the first changes."""
    return list(islice(ChangeGenerator(RECORD, ("id",), mode, shares, seed), COUNT))


@pytest.mark.parametrize("mode", ["retract", "upsert"])
def test_the_changes_are_a_changelog_of_their_mode(mode: ChangelogMode) -> None:
    """A row is inserted once, and retracted as it was sent; the columns accept every value."""
    rows: dict[int, dict[str, object]] = {}
    changes = made(mode, Composition(keys=100, nulls=0.2))
    for kind, row in changes:
        key = row["id"]
        if kind == "+I":
            assert key not in rows
        elif kind in ("-U", "-D"):
            assert rows.pop(key) == row
        else:
            assert (key in rows) == (mode == "upsert")
        if kind in ("+I", "+U"):
            rows[key] = row
        assert len(rows) <= 100
    assert len(encode(RECORD, [check_row(RECORD, row) for _, row in changes])) == COUNT
    assert {kind for kind, _ in changes} == {"+I", "+U", "-D"} | ({"-U"} if mode == "retract" else set())


def test_an_append_table_gets_insertions_only() -> None:
    """With keys that are counted up."""
    assert [(kind, row["id"]) for kind, row in made("append")] == [("+I", at + 1) for at in range(COUNT)]


def test_the_shares_are_kept() -> None:
    """Updates, deletes, NULLs and late rows have about the shares that were asked for."""
    changes = made("upsert", Composition(updates=0.5, deletes=0.2, nulls=0.25, late=0.1))
    kinds = Counter(kind for kind, _ in changes)
    assert kinds["+U"] / COUNT == pytest.approx(0.5, abs=0.03)
    assert kinds["-D"] / COUNT == pytest.approx(0.2, abs=0.03)
    assert sum(row["name"] is None for _, row in changes) / COUNT == pytest.approx(0.25, abs=0.03)
    border = max(row["at"] for _, row in changes) - timedelta(minutes=5)
    assert sum(row["at"] < border for _, row in changes) / COUNT == pytest.approx(0.1, abs=0.03)


def test_a_skew_updates_few_rows_often() -> None:
    """With Zipf's exponent 1.2, one row in a thousand has a large share of the updates; without skew, none has."""
    shares = {skew: Composition(updates=0.5, deletes=0, keys=1_000, skew=skew) for skew in (0.0, 1.0, 1.2)}
    most = {}
    for skew, of in shares.items():
        updates = Counter(row["id"] for kind, row in made("upsert", of) if kind == "+U")
        most[skew] = updates.most_common(1)[0][1] / updates.total()
    assert most[0.0] < 0.02
    assert 0.05 < most[1.0] < most[1.2]


def test_equal_seeds_give_equal_changes() -> None:
    """Except for the times, which are the present."""
    times = ("at", "local", "hour", "day")
    plain = [
        [(kind, {name: row[name] for name in row if name not in times}) for kind, row in made("retract", seed=seed)]
        for seed in (7, 7, 8)
    ]
    assert plain[0] == plain[1]
    assert plain[0] != plain[2]
