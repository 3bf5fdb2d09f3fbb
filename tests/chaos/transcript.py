"""`python -m tests.chaos.transcript`: a changed query's cut-over, seen by an operator and a consumer of its topics.

Both result topics have one partition. What a consumer of committed records has read is therefore always the state after
some transaction. The consumer checks every change against all earlier ones and reports errors.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import threading
from collections import Counter
from datetime import datetime
from itertools import islice
from operator import itemgetter
from pathlib import Path

from rowkind.service.dev.broker import Broker
from rowkind.service.dev.demo.data import order_book
from rowkind.service.dev.demo.result import expected
from tests.bench.compare import page
from tests.run.process import Rowkind, until
from tests.run.results import Results, Values
from tests.run.shop import Shop

_PAGE = Path("docs/how-to/change-a-query.md")
_PATIENCE = 120.0
_FROM = "FROM orders o JOIN payments p ON o.order_id = p.order_id"
_SINKS = {
    "paid": {
        "mode": "retract",
        "key": "payment_id",
        "partitions": 1,
        "sql": f"SELECT p.payment_id, o.customer, p.paid, p.method {_FROM}",
    },
    "takings": {
        "mode": "upsert",
        "key": "order_id",
        "partitions": 1,
        "sql": f"SELECT o.order_id, COUNT(*) AS payments, SUM(p.paid) AS paid {_FROM} GROUP BY o.order_id",
    },
}
_WITHOUT_CARDS = f"{_SINKS['paid']['sql']} WHERE p.method <> 'card'"


class Transcript:
    """The messages and their times; paths in `folder` are shown relative to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said: list[tuple[str, str]] = []

    def say(self, text: str, at: str = "") -> None:
        """Add a line at the current time, or at `at` (hours, minutes, seconds, milliseconds)."""
        text = text.replace(f"{self._folder}/", "")
        self._said.append((at or f"{datetime.now():%H:%M:%S,%f}"[:-3], text))  # noqa: DTZ005 - as the log has it

    @property
    def lines(self) -> list[str]:
        """Return the lines in order of time."""
        return [f"{at[:8]}  {text}" for at, text in sorted(self._said, key=itemgetter(0))]


class Consumer(threading.Thread):
    """A consumer that reads both topics continuously, and reports the number of rows whenever it changes."""

    def __init__(self, shop: Shop, said: Transcript) -> None:
        super().__init__(daemon=True)
        self._shop, self._said = shop, said
        self._over = threading.Event()
        self.results = {name: Results(shop, name) for name in _SINKS}
        self.rows: dict[str, Counter[Values]] = {}

    def run(self) -> None:
        """Read until `end`."""
        before = ""
        while not self._over.wait(0.2):
            self.rows = {name: results.rows() for name, results in self.results.items()}
            now = "; ".join(_seen(name, results) for name, results in self.results.items())
            if now != before:
                self._said.say(f"consumer: {now}")
            before = now

    def end(self) -> None:
        """Stop reading."""
        self._over.set()
        self.join()
        for results in self.results.values():
            results.close()


def _seen(name: str, results: Results) -> str:
    kinds = " ".join(f"{count} {kind}" for kind, count in sorted(results.kinds.items()))
    return f"{name} {results.live.total()} rows{f' of {kinds}' if kinds else ''}{', WRONG' if results.flaws else ''}"


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.transcript", description="A changed query's cut-over.")
    parser.add_argument("--write", action="store_true", help=f"put it into {_PAGE}")
    given = parser.parse_args()
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="rowkind-transcript-") as folder:
        said = Transcript(Path(folder))
        shop = Shop(broker.bootstrap_servers, Path(folder), "shop")
        right = play(shop, said)
    print(*said.lines, sep="\n")
    if given.write:
        text = "\n".join(["```text", *said.lines, "```"])
        page.put("cut-over", text, _PAGE)
    return 0 if right else 1


def play(shop: Shop, said: Transcript) -> bool:
    """Run the cut-over; return whether every change and the final results were right."""
    book = order_book(1_000_000, 7)
    sinks = {name: dict(sink) for name, sink in _SINKS.items()}
    path = shop.job(sinks, atomic=True)
    _run(shop, said, "topics", "create", str(path))
    consumer = Consumer(shop, said)
    consumer.start()
    said.say("600 changes of orders and payments happen")
    shop.happens(islice(book, 600))
    with _started(shop, said, "run", str(path)) as job:
        _await(shop, consumer, sinks, job)
        said.say("SIGTERM")
        job.terminate()
        _tell(said, job)
    said.say("job.yaml: the query of sink paid gets `WHERE p.method <> 'card'`")
    sinks["paid"]["sql"] = _WITHOUT_CARDS
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sinks": _of(shop, sinks)}))
    _run(shop, said, "diff", str(path))
    _run(shop, said, "run", str(path))
    said.say("200 more changes happen")
    shop.happens(islice(book, 200))
    with _started(shop, said, "run", "--upgrade", str(path)) as job:
        _await(shop, consumer, sinks, job)
        said.say("200 more changes happen")
        shop.happens(islice(book, 200))
        _await(shop, consumer, sinks, job)
        said.say("SIGTERM")
        job.terminate()
        _tell(said, job)
    consumer.end()
    wrong = [flaw for results in consumer.results.values() for flaw in results.flaws]
    said.say(f"changes that did not fit what was there before: {len(wrong)}; both folds are what DuckDB says")
    return not wrong


def _of(shop: Shop, sinks: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    return {name: {"topic": shop.topic(name), **sink} for name, sink in sinks.items()}


def _started(shop: Shop, said: Transcript, *arguments: str) -> Rowkind:
    said.say(f"$ rowkind {' '.join(arguments)}")
    return Rowkind(shop.folder / "output", *arguments, *(("--port", "0") if arguments[0] == "run" else ()))


def _run(shop: Shop, said: Transcript, *arguments: str) -> None:
    with _started(shop, said, *arguments) as command:
        _tell(said, command)


def _tell(said: Transcript, command: Rowkind) -> None:
    """Add the output of a command that has ended."""
    ended = command.ended(_PATIENCE)
    for line in (*ended.output.splitlines(), *ended.said):
        found = re.match(r"\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d,\d+) (.*)", line)
        said.say(f"    {found[2] if found else line}", found[1] if found else "")
    said.say(f"    exit code {ended.code}")


def _await(shop: Shop, consumer: Consumer, sinks: dict[str, dict[str, object]], job: Rowkind) -> None:
    """Wait until both topics equal DuckDB's results."""
    right = {name: expected(shop.events, str(sink["sql"])) for name, sink in sinks.items()}
    until(
        lambda: all(consumer.rows.get(name) == rows for name, rows in right.items()),
        "the right result",
        lambda: job.error,
        _PATIENCE,
    )


if __name__ == "__main__":
    sys.exit(main())
