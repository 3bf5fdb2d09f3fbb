"""A clock for what asks for the time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """Stands still unless it is set."""

    now: float

    def __call__(self) -> float:
        """The time that was set."""
        return self.now
