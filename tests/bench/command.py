"""Run a command to its end, and measure it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MeasuredCommand:
    """A command that has succeeded: wall and CPU seconds, the peak of resident memory in bytes, and its output."""

    wall: float
    cpu: float
    peak: int
    output: str


def measured(command: Sequence[str]) -> MeasuredCommand:
    """Run the command, which must succeed."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.stdout.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, said
    return MeasuredCommand(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, said)
