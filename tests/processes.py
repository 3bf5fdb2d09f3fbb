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


def having(variable: str) -> list[int]:
    """The living processes that have this variable in their environment, as NAME=value."""
    return [pid for pid in _pids() if variable.encode() in _environment(pid).split(b"\0")]


def command(pid: int) -> bytes:
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pid in _pids():
        with suppress(OSError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(pid)
    return found


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
