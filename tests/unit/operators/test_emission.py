"""Netting of a batch's changes for a sink, compared with a short model over a complete multiset."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from rowkind.operators.changelog import SYMBOLS, ChangelogMode
from rowkind.operators.columns.changes import Changes, binary, constant
from rowkind.operators.columns.emission import RetractionError, net
from rowkind.operators.columns.hashing import hash64

Change = tuple[str, bytes, bytes]
"""Row kind, key, and row."""


def changes(given: list[Change]) -> Changes:
    """Return changes in arrival order."""
    key = binary([key for _, key, _ in given])
    kinds = np.array([SYMBOLS.index(kind) for kind, _, _ in given], np.int8)
    count = len(given)
    rows = binary([row for _, _, row in given])
    return Changes(np.zeros(count, np.int8), kinds, hash64(key), key, constant(b"", count), np.arange(count), rows)


def netted(given: list[Change], form: ChangelogMode, *, keyed: bool = True, by_seq: bool = False) -> list[Change]:
    """Return the result of `net` for these changes."""
    result = net(changes(given), form, keyed=keyed, by_seq=by_seq)
    kinds = [SYMBOLS[kind] for kind in result.kind]
    return list(zip(kinds, result.key.to_pylist(), result.payload.to_pylist(), strict=True))


def test_the_halves_of_an_update_stand_together_old_row_first() -> None:
    """-D and +I of one key in a batch become an adjacent pair of -U and +U."""
    given = [("+I", b"1", b"new"), ("+I", b"2", b"x"), ("-D", b"1", b"old")]
    assert sorted(netted(given, "retract")) == sorted([("-U", b"1", b"old"), ("+U", b"1", b"new"), ("+I", b"2", b"x")])
    found = netted(given, "retract")
    assert found.index(("-U", b"1", b"old")) + 1 == found.index(("+U", b"1", b"new"))


def test_a_row_that_did_not_change_is_not_emitted() -> None:
    """The deletion and insertion of an equal row cancel in every mode that has deletions."""
    given = [("-D", b"1", b"same"), ("+I", b"1", b"same")]
    assert netted(given, "retract") == netted(given, "upsert") == netted(given, "retract", keyed=False) == []


def test_an_upsert_result_never_has_the_old_row() -> None:
    """An upsert result has +U for a replaced row, +I for a new key and -D for a deleted key."""
    given = [("-D", b"1", b"a"), ("+I", b"1", b"b"), ("+I", b"2", b"c"), ("-D", b"3", b"d")]
    assert sorted(netted(given, "upsert")) == [("+I", b"2", b"c"), ("+U", b"1", b"b"), ("-D", b"3", b"d")]


def test_an_upsert_stream_is_ordered_by_seq_and_not_cancelled() -> None:
    """For an upsert stream, only the last change of a key by seq is emitted, whatever came before it."""
    given = [("+U", b"1", b"a"), ("-D", b"1", b""), ("-D", b"2", b""), ("+U", b"2", b"b"), ("+U", b"2", b"c")]
    assert sorted(netted(given, "upsert", by_seq=True)) == [("+U", b"2", b"c"), ("-D", b"1", b"")]


def test_without_a_key_equal_rows_are_counted() -> None:
    """Without a key, equal rows are counted, and the remaining changes are never paired to updates."""
    given = [("+I", b"", b"a"), ("+I", b"", b"a"), ("-D", b"", b"a"), ("-D", b"", b"b"), ("-D", b"", b"b")]
    assert sorted(netted(given, "retract", keyed=False)) == [("+I", b"", b"a"), ("-D", b"", b"b"), ("-D", b"", b"b")]


def test_an_append_result_keeps_its_rows_and_refuses_retractions() -> None:
    """An append result keeps all insertions in their order, with duplicates, and refuses retractions."""
    given = [("+I", b"", b"b"), ("+U", b"", b"a"), ("+I", b"", b"b")]
    assert netted(given, "append", keyed=False) == [("+I", b"", b"b"), ("+I", b"", b"a"), ("+I", b"", b"b")]
    with pytest.raises(RetractionError):
        netted([("-D", b"", b"a")], "append", keyed=False)


def test_nothing_gives_nothing() -> None:
    """An empty batch gives an empty result in every mode."""
    for form in ("append", "retract", "upsert"):
        assert netted([], form) == []


@pytest.mark.parametrize("seed", range(40))
def test_any_batch_does_to_the_result_what_its_changes_do(seed: int) -> None:
    """Applying the netted changes of a random batch to a keyed table gives the same table as all changes."""
    chance = random.Random(seed)
    before = {b"%d" % key: b"v%d" % chance.randrange(4) for key in range(12) if chance.random() < 0.6}
    table, given = dict(before), []
    for _ in range(chance.randrange(1, 60)):
        key, row = b"%d" % chance.randrange(12), b"v%d" % chance.randrange(4)
        if key in table:
            given.append(("-D", key, table.pop(key)))
        if chance.random() < 0.7:
            given.append(("+I", key, row))
            table[key] = row
    chance.shuffle(given)
    assert _retracted(before, netted(given, "retract")) == table, f"seed {seed}"
    assert _upserted(before, netted(given, "upsert")) == table, f"seed {seed}"
    rows = Counter(before.values())
    for kind, _, row in netted(given, "retract", keyed=False):
        rows[row] += 1 if kind == "+I" else -1
    assert +rows == Counter(table.values()), f"seed {seed}"


def _retracted(table: dict[bytes, bytes], result: list[Change]) -> dict[bytes, bytes]:
    table, previous = dict(table), ("", b"", b"")
    for kind, key, row in result:
        if kind in ("-U", "-D"):
            assert table.pop(key) == row
        else:
            assert key not in table
            assert kind == "+I" or previous[:2] == ("-U", key)
            table[key] = row
        previous = (kind, key, row)
    assert len({(kind, key) for kind, key, _ in result}) == len(result)
    return table


def _upserted(table: dict[bytes, bytes], result: list[Change]) -> dict[bytes, bytes]:
    table = dict(table)
    assert len({key for _, key, _ in result}) == len(result)
    for kind, key, row in result:
        if kind == "-D":
            del table[key]
        else:
            assert kind == ("+U" if key in table else "+I")
            table[key] = row
    return table


@pytest.mark.parametrize(
    ("form", "keyed"), [("append", False), ("retract", False), ("retract", True), ("upsert", True)]
)
def test_rows_that_come_in_order_are_put_in_it(form: ChangelogMode, keyed: bool) -> None:
    """With `ordered`, changes are emitted in the order of sub-key and arrival."""
    rows = [(b"2", 5), (b"1", 7), (b"2", 1), (b"1", 3), (b"3", 0)]
    given = changes([("+I", b"%d" % number, b"%d" % number) for number in range(len(rows))])
    given = replace(given, sub_key=binary(key for key, _ in rows), seq=np.array([seq for _, seq in rows]))
    result = net(given, form, keyed=keyed, ordered=True)
    assert result.payload.to_pylist() == [b"3", b"1", b"2", b"0", b"4"]
