"""Every release that was kept is gone on from: its checkpoints, its state, its progress, its topics."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.run.process import Rowkind
from tests.run.results import Results
from tests.run.shop import Shop
from tests.upgrade.saved import EVENTS, FOLDER, SAVED, await_right, book, broker, job, unpack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.mark.parametrize("release", sorted(archive.name.removesuffix(".tar.xz") for archive in FOLDER.glob("*.tar.xz")))
def test_what_a_release_has_written_is_gone_on_from(tmp_path: Path, release: str) -> None:
    """With what was in state, what goes and what comes is right; no change is written twice."""
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
