"""What is known of all jobs of a service at one moment, as plain data: for its page, for a terminal, and as JSON.

Moments are in Unix time, durations in seconds, rates in rows a second over the last half minute.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from rowkind.service.run.status import BatchProgress, QueryState

JobState = Literal[QueryState, "refused"]
"""A job whose process has ended has failed. One that is refused has none, and gets none before its file changes."""


@dataclass(frozen=True)
class JobOverview:
    """A job in a few numbers, of all its queries together; `last_batch` is None before the first of this process.

    `restarts` are starts after it had ended with a failure. `error` is what is wrong with it, now or until a batch has
    succeeded again, and `remedy` what will be done, or is to be; both are empty if nothing is.
    """

    name: str
    state: JobState
    lag_rows: int = 0
    lag_seconds: float = 0.0
    read: float = 0.0
    written: float = 0.0
    last_batch: BatchProgress | None = None
    restarts: int = 0
    error: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Overview:
    """The jobs of the files in `path` at the moment `at`."""

    path: str
    version: str
    at: float
    jobs: tuple[JobOverview, ...]

    def to_json(self) -> str:
        """One JSON document. Its keys are the names of the fields; new ones may come."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What `to_json` has written. Raises ValueError, KeyError or TypeError for anything else."""
        said = json.loads(text)
        return cls(said["path"], said["version"], said["at"], tuple(map(_job, said["jobs"])))


def _job(said: Mapping[str, Any]) -> JobOverview:
    last = None if said["last_batch"] is None else BatchProgress(**said["last_batch"])
    return JobOverview(**{**said, "last_batch": last})
