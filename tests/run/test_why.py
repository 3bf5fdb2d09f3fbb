"""`rowkind why` over the topics of a job that has run."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.dev.broker import Broker
from tests.run.process import Rowkind, until
from tests.run.results import Results
from tests.run.shop import Shop

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SLOW = 100.0
STARS = {
    "mode": "upsert",
    "key": "stars",
    "sql": "SELECT stars, COUNT(*) AS n FROM ratings WHERE stars IS NOT NULL GROUP BY stars",
}
LIKED = {"mode": "append", "sql": "SELECT rating_id, stars FROM ratings WHERE stars > 3"}


def asked(shop: Shop, job: Path, *arguments: str) -> dict[str, Any]:
    """Return the answer as JSON."""
    return dict(json.loads(ended(shop, job, *arguments, "-o", "json")))


def ended(shop: Shop, job: Path, *arguments: str, code: int = 0) -> str:
    """Return what the command prints."""
    with Rowkind(shop.folder / "output", "why", str(job), *arguments) as running:
        found = running.ended(SLOW)
    assert found.code == code, found.error
    return found.output if code == 0 else found.error


def test_a_row_is_explained_from_the_topics_of_a_job(broker: Broker, tmp_path: Path) -> None:
    """A row is explained by its source records, its steps and its history, and compared with the result's topic."""
    shop = Shop(broker.bootstrap_servers, tmp_path, f"why-{os.getpid()}", 1)
    job = shop.job({"per_stars": STARS, "liked": LIKED})
    for number in range(12):
        shop.row("ratings", "+I", rating_id=number, stars=number % 5)
    shop.flush()
    with Rowkind(tmp_path / "output", "run", str(job), "--port", "0") as running:
        with closing(Results(shop, "per_stars")) as results:
            until(
                lambda: results.rows() == Counter([(0, 3), (1, 3), (2, 2), (3, 2), (4, 2)]),
                "rows",
                lambda: running.error,
                SLOW,
            )
            shop.row("ratings", "+I", rating_id=12, stars=3)
            shop.flush()
            until(lambda: (3, 3) in results.rows(), "the new row", lambda: running.error, SLOW)
        running.terminate()
        assert running.ended(SLOW).code == 0
    found = asked(shop, job, "per_stars", "3", "--changes")
    assert found["rows"] == [{"stars": 3, "n": 3}]
    assert found["topic"] == {"topic": shop.topic("per_stars"), "rows": [{"stars": 3, "n": 3}], "differs": False}
    steps = {step["step"]: step for step in found["steps"]}
    sources = steps["scan_ratings"]["sources"]
    assert [(each["partition"], each["offset"]) for each in sources] == [(0, 3), (0, 8), (0, 12)]
    assert [each["row"]["rating_id"] for each in sources] == [3, 8, 12]
    assert steps["aggregate_1"]["rows"] == [{"ratings.stars": 3, "n": 3}]
    assert [(each["row"]["n"], each["by"][0]["offset"]) for each in found["changes"]] == [(2, 8), (3, 12)]
    assert [each["together_with"] for each in found["changes"]] == [1, 0]
    absent = asked(shop, job, "liked", "rating_id=2")
    assert not absent["present"]
    assert [(each["step"], each["kind"]) for each in absent["causes"]] == [("scan_ratings", "filter")]
    # The job is not running, so it has not read this row, and its topic does not have the row's change.
    shop.row("ratings", "+I", rating_id=13, stars=3)
    shop.flush()
    unread = asked(shop, job, "per_stars", "stars=3")
    assert (unread["rows"], unread["topic"]["differs"]) == ([{"stars": 3, "n": 3}], False)
    assert [each["later"] for each in unread["reads"]] == [1]
    text = ended(shop, job, "per_stars", "3", "--changes", "-o", "text")
    assert "per_stars: 1 row with stars = 3" in text
    assert "the job has not read up to 1 later record of ratings yet" in text
    assert "there is no sink 'x'" in ended(shop, job, "x", "3", code=2)
    assert "The key of sink per_stars: stars INT" in ended(shop, job, "per_stars", "many", code=2)
    print(text)
