"""CPU time and memory of a process with all its descendants."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """CPU seconds of a process, of its descendants, and of those of them that have ended."""
    stats = _stats()
    return sum(stats[pid][1] for pid in _family(root, stats)) / _TICKS


def memory_bytes(root: int) -> int:
    """Resident bytes of a process and its descendants; pages that they share count once."""
    total = 0
    for pid in _family(root, _stats()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def _stats() -> Mapping[int, tuple[int, int]]:
    """Parent, and ticks on the CPU, of every process."""
    found: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry.name)] = (int(fields[1]), sum(int(field) for field in fields[11:15]))
    return found


def _family(root: int, stats: Mapping[int, tuple[int, int]]) -> set[int]:
    family = {root}
    while more := {pid for pid, (parent, _) in stats.items() if parent in family} - family:
        family |= more
    return family & set(stats)
