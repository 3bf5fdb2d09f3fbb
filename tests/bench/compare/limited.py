"""A control group with a memory limit, which includes all its processes and their page cache, like a container's."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


@contextmanager
def limited(size: int) -> Iterator[list[str]]:
    """Yield a command prefix that runs it in a group of `size` bytes; the command must end within the context."""
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
