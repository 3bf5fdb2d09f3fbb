"""The demo's display while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from rowkind.avro.registry import FolderRegistry
from rowkind.service.cli import main
from rowkind.service.dev.demo.result import ResultTopic, picture
from rowkind.service.dev.demo.show import SHOWN_ROWS


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
    assert picture(topics, 6) == ["no results yet: the first batch is running"]


def test_rows_stand_below_their_columns(topics: list[ResultTopic]) -> None:
    """The latest rows of the first result are printed under its columns; every result has its number of changes."""
    rows = [(1, "Ada", Decimal("12.50")), (2, None, Decimal("3.00"))]
    topics[0].columns = ("order_id", "customer", "amount")
    topics[0].rows, topics[0].kinds, topics[0].latest = Counter(rows), Counter({"+I": 2}), dict.fromkeys(rows)
    assert picture(topics, 6) == [
        "a: 2 rows from +I 2",
        "b: 0 rows from no changes",
        "",
        "  order_id   customer   amount",
        "  2          -          3.00",
        "  1          Ada        12.50",
    ]


def test_the_picture_fits_a_small_terminal(topics: list[ResultTopic]) -> None:
    """With the longest names and numbers of some hours, and two lines above it, within 80 columns and 24 lines."""
    for topic in topics:
        topic.topic = "order-payments"
        topic.columns = ("order_id", "customer", "amount", "status", "payment_id", "paid", "method")
        rows = [
            (1234567 + n, "Dorothea", Decimal("499.99"), "shipped", 1234567, Decimal("1.00"), "transfer")
            for n in range(9)
        ]
        topic.rows, topic.latest = Counter(dict.fromkeys(rows, 99_999)), dict.fromkeys(rows)
        topic.kinds = Counter(dict.fromkeys(("+I", "-D", "-U", "+U"), 999_999))
    lines = picture(topics, SHOWN_ROWS)
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 20


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In one line, before anything else."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == 1
    assert done.output == (
        "rowkind: Rowkind needs Java, but there is no java on the path: install a JRE 17 or newer, or set JAVA_HOME to "
        "its folder.\n"
    )
