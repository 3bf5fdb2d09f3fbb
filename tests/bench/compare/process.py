"""CPU time and memory of a process with all its descendants."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

_KINDS = {
    "JVM as Spark starts it": b"SparkSubmit",
    # By its process name: the shell under which it runs has the same command line.
    "JVM": b"java\n",
    "writers": b"rowkind-writer\n",
    "stand-ins": b"stand_in.py",
    "what forks": b"service.processes.forks",
    "workers of tasks": b"worker_daemon\0pyspark.worker\0",
    "source runners": b"streaming_source_runner",
    "other pyspark": b"pyspark",
}
"""Kinds of processes by a part of their name or command line; the first match counts."""

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """Return the CPU seconds of a process and its descendants, including descendants that have ended."""
    stats = _stats()
    return sum(stats[pid][1] for pid in _family(root, stats)) / _TICKS


def machine_seconds() -> float:
    """Return the CPU seconds of all processes of the machine, including those that have ended."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + irq + softirq) / _TICKS


def memory_bytes(root: int) -> int:
    """Return the resident bytes of a process and its descendants; shared pages count once."""
    return sum(size for _, size in by_kind(root))


def by_kind(root: int) -> Iterator[tuple[str, int]]:
    """Yield the kind and the resident bytes of a process and each descendant; shared pages count proportionally."""
    for pid in _family(root, _stats()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            kind = _kind(pid)
        except OSError:
            continue
        yield kind, sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def of_kind(root: int, kind: str) -> list[int]:
    """Return the processes of a kind among a process and its descendants."""
    found = []
    for pid in _family(root, _stats()):
        with suppress(OSError):
            if _kind(pid) == kind:
                found.append(pid)
    return found


def _kind(pid: int) -> str:
    command = Path(f"/proc/{pid}/comm").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
    return next((name for name, mark in _KINDS.items() if mark in command), "main")


def _stats() -> Mapping[int, tuple[int, int]]:
    """Return the parent and the CPU ticks of every process."""
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
