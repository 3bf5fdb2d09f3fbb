"""The memory of a job's processes, from Linux's /proc. It is not available on other systems.

A page that several processes share, as forked processes do, is counted in equal parts for each of them (PSS). So the
sum is the memory that the job takes from the machine or from its container's limit.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

Kind = Literal["command", "java", "python"]

_STAT = re.compile(r"(?P<pid>\d+) \((?P<name>.*)\) \S (?P<parent>\d+) ", re.DOTALL)
_PSS = re.compile(r"^Pss: *(\d+) kB$", re.MULTILINE)


def memory() -> Mapping[Kind, int]:
    """Return the current memory, in bytes, of this process, of Java, and of all other descendants of this process."""
    if not Path("/proc/self/smaps_rollup").exists():
        return {}
    sizes = dict.fromkeys(get_args(Kind), 0)
    for pid, name in _family():
        with suppress(OSError):
            found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
            kind: Kind = "command" if pid == os.getpid() else "java" if name == "java" else "python"
            sizes[kind] += int(found[1]) << 10 if found else 0
    return sizes


def _family() -> Iterator[tuple[int, str]]:
    """Yield this process and its descendants, each with the name of its program."""
    names: dict[int, str] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        # The process may have exited in the meantime.
        with suppress(OSError):
            if found := _STAT.match(path.read_text(errors="replace")):
                names[int(found["pid"])] = found["name"]
                children[int(found["parent"])].append(int(found["pid"]))
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        waiting += children[pid]
        if pid in names:
            yield pid, names[pid]
