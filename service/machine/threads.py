"""The threads of this process. A process may fork only while it has one."""

from __future__ import annotations

from pathlib import Path

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Environment variables that keep libraries from starting threads on import."""


def threads() -> int:
    """Return the number of this process's threads, or 0 if it is unknown."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else 0
