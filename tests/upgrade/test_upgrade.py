"""Upgrades from every stored release: its checkpoint, state, progress and topics are continued."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from rowkind.service.checkpoint.checkpoint_metadata import Contents
from rowkind.service.checkpoint.upgrade import upgrade
from rowkind.service.job.load import load
from tests.run.process import Rowkind
from tests.run.results import Results
from tests.run.shop import COLUMNS, KEYS, MODES, Shop
from tests.upgrade.saved import EVENTS, FOLDER, SAVED, await_right, book, broker, job, unpack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.mark.parametrize("release", sorted(archive.name.removesuffix(".tar.xz") for archive in FOLDER.glob("*.tar.xz")))
def test_what_a_release_has_written_is_gone_on_from(tmp_path: Path, release: str) -> None:
    """The results stay right with the stored state and new changes, and no change is written twice."""
    unpack(FOLDER / f"{release}.tar.xz", tmp_path)
    with broker(tmp_path) as running:
        shop = Shop(running.bootstrap_servers, tmp_path, "shop", opened=True)
        events = book()
        shop.events += islice(events, EVENTS)
        results = {check.name: Results(shop, check.name) for check in SAVED}
        with Rowkind(tmp_path / "output", "run", str(job(shop)), "--port", "0") as rowkind:
            for _ in range(2):
                shop.happens(islice(events, EVENTS // 4))
                await_right(results, shop, rowkind)
            rowkind.terminate()
            assert rowkind.ended().code == 0, rowkind.error
        for each in results.values():
            assert not each.flaws, f"{each.topic}: {each.flaws[:5]}"
            each.close()


@pytest.mark.parametrize("release", sorted(archive.name.removesuffix(".tar.xz") for archive in FOLDER.glob("*.tar.xz")))
def test_the_plans_of_a_release_are_planned_the_same(tmp_path: Path, release: str) -> None:
    """The release's query is continued; for a changed plan, the message says that the query was not recorded."""
    with tarfile.open(FOLDER / f"{release}.tar.xz") as archive:
        note = archive.extractfile("checkpoint/shop/main/rowkind.json")
        assert note is not None
        there = Contents.of(json.load(note))
    sinks = {check.name: {"topic": f"shop-{check.name}", **check.sink} for check in SAVED}
    tables = {
        name: {"topic": f"shop-{name}", "mode": MODES[name], "columns": COLUMNS[name]}
        | ({"primary_key": KEYS[name]} if name in KEYS else {})
        for name in COLUMNS
    }
    (tmp_path / "job.yaml").write_text(json.dumps({"job": "shop", "tables": tables, "sinks": sinks}))
    job = load(tmp_path / "job.yaml", {})
    plan = upgrade(job, {"main": there})
    assert plan.stay == {"main"}, plan.changes
    other = {sink: {**facts, "join_1.kind": "full"} for sink, facts in there.sinks.items()}
    changes = upgrade(job, {"main": replace(there, sinks=other)}).changes
    assert all("did not record the query" in lines[0] for lines in changes.values())
