"""How the sources of one query agree on what each batch holds.

A query in which several stages read topics has a source for each of them, and Spark asks each how far the next batch
goes. Were their answers different, a row would reach one stage a batch before it reaches another, and a table joined
with its own aggregate would not fit it. So in each trigger the source that is asked first decides for all, and the
others say the same: all know the offsets of all topics of the query.

Spark asks one source after the other, each once in every trigger; so a source that is asked again begins a new round.
Each source is planned in a process of its own; what they agreed upon lies in a folder on the driver. It is new with
every run: what has been decided and logged is replayed from the log, and what has not may be decided anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Agreement:
    """One source's place among the others; `folder` is shared by all, `source` is this one's own name."""

    folder: Path
    source: str

    def each_round(self, decide: Callable[[], Any]) -> Any:
        """What the first source of this round decided, as JSON has it."""
        file = self.folder / "round.json"
        last = json.loads(file.read_text()) if file.exists() else {"asked": [self.source]}
        if self.source in last["asked"]:
            last = {"asked": [], "decision": decide()}
        self._write(file, {**last, "asked": [*last["asked"], self.source]})
        return last["decision"]

    def once(self, question: str, decide: Callable[[], Any]) -> Any:
        """What the first source that was asked this question decided."""
        file = self.folder / f"{question}.json"
        if not file.exists():
            self._write(file, decide())
        return json.loads(file.read_text())

    def _write(self, file: Path, value: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(json.dumps(value))
        new.replace(file)
