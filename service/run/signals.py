"""The signals that ask a job to stop: SIGTERM and SIGINT let every query finish its batch, a second one does not."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from types import FrameType
from typing import Self


@dataclass
class AskedToStop:
    """How often somebody has asked a job to stop."""

    count: int = 0


class Signals(AskedToStop):
    """How many signals to stop have come. Used with `with`, after which the handlers are what they were."""

    _NUMBERS = (signal.SIGTERM, signal.SIGINT)

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in self._NUMBERS}
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Take the signals, also from whoever took them since: pyspark does so when a session starts."""
        for number in self._NUMBERS:
            signal.signal(number, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
