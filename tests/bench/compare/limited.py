"""A control group that may take so many bytes, all its processes and their pages of files: as a container is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


@contextmanager
def limited(size: int) -> Iterator[list[str]]:
    """The words to put before a command, so that it runs in a group of so many bytes; it must have ended in the end."""
    first = _ROOT / "memory"
    parent, limit = (first, "memory.limit_in_bytes") if first.is_dir() else (_ROOT, "memory.max")
    group = parent / f"rowkind-{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(size))
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        while (group / "cgroup.procs").read_text():
            time.sleep(0.1)
        group.rmdir()
