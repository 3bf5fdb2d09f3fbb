"""`python -m tests.upgrade RELEASE`: store this release's output, from which all later ones must start."""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import islice
from pathlib import Path

from tests.run.process import Rowkind
from tests.run.results import Results
from tests.run.shop import Shop
from tests.upgrade.saved import EVENTS, FOLDER, SAVED, await_right, book, broker, job, pack

_BATCHES = 4


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description="Keep what a release writes.")
    parser.add_argument("release", help="such as 0.1")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with broker(folder) as running:
            shop = Shop(running.bootstrap_servers, folder, "shop")
            file = job(shop)
            results = {check.name: Results(shop, check.name) for check in SAVED}
            events = book()
            with Rowkind(folder / "output", "run", str(file), "--port", "0") as rowkind:
                # Several batches are written, so that there are runs to merge.
                for _ in range(_BATCHES):
                    shop.happens(islice(events, EVENTS // _BATCHES))
                    await_right(results, shop, rowkind)
                rowkind.terminate()
                assert rowkind.ended().code == 0, rowkind.error
            for each in results.values():
                each.close()
        pack(folder, FOLDER / f"{given.release}.tar.xz")
    return 0


if __name__ == "__main__":
    sys.exit(main())
