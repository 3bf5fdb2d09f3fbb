"""The machine's clock as a job sees it; it can be set for that job alone (see clock.c)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")
_BYTES = 8


class Clock:
    """The clock of processes that run with this `environment`; at first it is right. Its files are in `folder`.

    Raises:
        OSError, subprocess.CalledProcessError: there is no C compiler.
    """

    def __init__(self, folder: Path) -> None:
        library = folder / "clock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE)], check=True)
        self._off = folder / "clock"
        self.set(0)
        self.environment: Mapping[str, str] = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self._off)}

    def set(self, seconds: int) -> None:
        """Set the clock ahead of the right time by so many seconds; behind it if negative."""
        with self._off.open("r+b" if self._off.exists() else "wb") as file:
            file.write(seconds.to_bytes(_BYTES, "little", signed=True))
