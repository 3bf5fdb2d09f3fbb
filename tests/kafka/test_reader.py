"""The reader over a real broker: which records a batch has, whatever gaps, transactions and retention leave of them."""

from __future__ import annotations

import pytest

from tests.kafka.tables import Topic, order, read_all

pytestmark = pytest.mark.kafka


def test_rows_come_with_their_kinds_values_and_arrival_numbers(orders: Topic) -> None:
    """Each record is a change; its seq is its offset shifted by the partition's 16 bits."""
    orders.send(
        (b"+I", order(1, "a", "1.50")), (b"-U", order(1, "a", "1.50")), (b"+U", order(1, "b")), (b"-D", order(1))
    )
    result = read_all(orders.spec())
    assert result.rows() == [
        ("+I", order(1, "a", "1.50")),
        ("-U", order(1, "a", "1.50")),
        ("+U", order(1, "b")),
        ("-D", order(1)),
    ]
    assert sorted(result.changes.seq.tolist()) == [0, 1 << 16, 2 << 16, 3 << 16]
    assert result.letters == []
