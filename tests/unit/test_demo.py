"""The demo's display while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from rowkind.avro.registry import FolderRegistry
from rowkind.service.dev.demo.result import ResultTopic, picture


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[list[ResultTopic]]:
    """Two topics of an unreachable broker, from which nothing has been read."""
    registry = FolderRegistry(tmp_path)
    with (
        closing(ResultTopic("127.0.0.1:1", "a", registry)) as a,
        closing(ResultTopic("127.0.0.1:1", "b", registry)) as b,
    ):
        yield [a, b]


def test_nothing_is_said_once(topics: list[ResultTopic]) -> None:
    """Before the first batch has ended, one line for all results says that there are none yet."""
    assert picture(topics, 6) == ["  no results yet: the first batch is running"]


def test_rows_stand_below_their_columns(topics: list[ResultTopic]) -> None:
    """The latest rows of the first result are printed under its columns; every result has its number of changes."""
    rows = [(1, "Ada", Decimal("12.50")), (2, None, Decimal("3.00"))]
    topics[0].columns = ("order_id", "customer", "amount")
    topics[0].rows, topics[0].kinds, topics[0].latest = Counter(rows), Counter({"+I": 2}), dict.fromkeys(rows)
    assert picture(topics, 6) == [
        "  a: 2 rows now, after +I 2",
        "  b: 0 rows now, after no changes",
        "    order_id      customer      amount",
        "    2             -             3.00",
        "    1             Ada           12.50",
    ]
