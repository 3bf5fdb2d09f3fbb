"""Python functions in a running job: how a row that a function fails on is reported."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.dev.broker import Broker
from tests.kafka.sinks import committed
from tests.run.process import Rowkind, until
from tests.run.results import Results
from tests.run.shop import Shop, Told

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SLOW = 300
ZERO = "integer division or modulo by zero"
CODE = """
import pyarrow as pa


def worth(stars):
    return pa.array([100 // each for each in stars.to_pylist()])


def points(stars):
    return [[{"point": {1: "*", 2: "**"}[each]}] for each in stars.to_pylist()]


class Lowest:
    def create(self):
        return {"least": None}

    def add(self, state, numbers):
        for each in numbers.to_pylist():
            assert each < 1_000, f"{each} is too much"
            state["least"] = min(each, state["least"] or each)

    def result(self, state):
        return state["least"]
"""
FUNCTIONS = {
    "worth": {"python": "own:worth", "arguments": ["INT"], "returns": "BIGINT", "deterministic": True},
    "points": {
        "python": "own:points",
        "kind": "table",
        "arguments": ["INT"],
        "returns": {"point": "STRING"},
        "deterministic": True,
    },
    "lowest": {
        "python": "own:Lowest",
        "kind": "aggregate",
        "arguments": ["BIGINT"],
        "returns": "BIGINT",
        "deterministic": True,
        "accumulator": {"least": "BIGINT"},
    },
}
SINKS = {
    "worth": {"mode": "append", "sql": "SELECT rating_id, worth(stars) AS worth FROM ratings"},
    "points": {"mode": "append", "sql": "SELECT rating_id, p.point FROM ratings, LATERAL points(stars) AS p"},
    "first": {
        "mode": "upsert",
        "key": "stars",
        "sql": "SELECT stars, lowest(rating_id) AS lowest FROM ratings WHERE stars > 0 GROUP BY stars",
    },
}


def test_an_error_in_a_function_names_the_row_and_the_line_of_python(broker: Broker, tmp_path: Path) -> None:
    """The job's last words, or the dead letter, name the table, partition, offset and the line that failed."""
    shop = Shop(broker.bootstrap_servers, tmp_path, f"functions-{os.getpid()}")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own.py").write_text(CODE)
    own = {"code": "code", "functions": FUNCTIONS, "tables": {"ratings": shop.table("ratings")}}
    job, results = shop.job(SINKS, **own), {name: Results(shop, name) for name in SINKS}
    _rated(shop, 1, 1)
    nothing = _rated(shop, 2, 0)
    with _run(shop, job) as running:
        ended = _ended(running)
    assert f"ratings: WORTH(ratings.stars): worth: ZeroDivisionError: {ZERO}, {_at('100 // each')}" in ended
    assert f"on the row from {_place(nothing)}" in ended

    job = shop.job(SINKS, **own, on_error="dead_letter")
    with _run(shop, job) as running:
        much = _rated(shop, 3, 3)
        # A row that a function fails on is missing only from the sinks that call the function.
        _until(
            running,
            results,
            worth={(1, 100): 1, (3, 33): 1},
            points={(1, "*"): 1},
            first={(1, 1): 1, (3, 3): 1},
        )
        until(lambda: len(_letters(shop)) == 3, "the dead letters", lambda: f"{_letters(shop)}{running.error}", SLOW)
        for told, function, error in (
            (nothing, "worth", f"ZeroDivisionError: {ZERO}, {_at('100 // each')}"),
            (nothing, "points", f"KeyError: 0, {_at('[each]')}"),
            (much, "points", f"KeyError: 3, {_at('[each]')}"),
        ):
            (letter,) = (
                each
                for each in _letters(shop)
                if f"{function}: " in each["__connect.errors.exception.message"]
                and _origin(told).items() <= each.items()
            )
            assert error in letter["__connect.errors.exception.message"]
        late = _rated(shop, 1_000, 1)
        ended = _ended(running)
    assert f"lowest.add: AssertionError: 1000 is too much, {_at('assert')}" in ended
    assert f"on the row from {_place(late)} of ratings" in ended
    for result in results.values():
        assert not result.flaws
        result.close()


def _at(part: str) -> str:
    """Return where a line is in the code, and the line."""
    (found,) = ((number, line) for number, line in enumerate(CODE.splitlines(), 1) if part in line)
    return f"at own.py:{found[0]}: {found[1].strip()}"


def _rated(shop: Shop, number: int, stars: int) -> Told:
    told = shop.row("ratings", "+I", rating_id=number, stars=stars)
    shop.flush()
    return told


def _place(told: Told) -> str:
    return f"offset {told.offset} of partition {told.partition}"


def _origin(told: Told) -> dict[str, str]:
    return {
        "__connect.errors.topic": told.topic,
        "__connect.errors.partition": str(told.partition),
        "__connect.errors.offset": str(told.offset),
    }


def _run(shop: Shop, job: Path) -> Rowkind:
    return Rowkind(shop.folder / "output", "run", str(job), "--port", "0")


def _ended(running: Rowkind) -> str:
    ended = running.ended(SLOW)
    assert ended.code == 1, ended.error
    assert "Traceback" not in ended.error
    return "\n".join(ended.said[-2:])


def _until(running: Rowkind, results: dict[str, Results], **wanted: dict[tuple[Any, ...], int]) -> None:
    def done() -> bool:
        assert running.running, running.error
        return all(results[name].rows() == Counter(rows) for name, rows in wanted.items())

    until(done, "the results", lambda: f"{[each.rows() for each in results.values()]}{running.error}", SLOW)


def _letters(shop: Shop) -> list[dict[str, str]]:
    found = committed({"bootstrap.servers": shop.servers}, shop.topic("dead-letters"))
    return [{name: (value or b"").decode() for name, value in letter.headers()} for letter in found]
