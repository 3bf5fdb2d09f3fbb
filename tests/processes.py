"""The processes of this machine, read from /proc."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def descendants(root: int) -> list[int]:
    """Return the ids of all descendants of a process."""
    children = _children()
    found, left = [], [root]
    while left:
        left += (more := children.get(left.pop(), []))
        found += more
    return found


def command(pid: int) -> bytes:
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found.setdefault(parent, []).append(int(entry.name))
    return found
