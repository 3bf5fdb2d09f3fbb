"""The status of all jobs of a service at one moment, as plain data for a page, a terminal or JSON.

Times are Unix time in seconds, and durations are in seconds. Rates are sums of the queries' rates, which
`service.monitoring.status` describes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from rowkind.service.monitoring.status import BatchProgress, QueryState

JobState = Literal[QueryState, "refused"]
"""A job's state. A failed job's process has ended. A refused job has no process until its file changes."""


@dataclass(frozen=True)
class JobOverview:
    """A job in a few numbers, over all its queries.

    - `last_batch`: None until the job's process has finished its first batch.
    - `restarts`: the number of starts after a failure.
    - `error`: the current problem, or the last failure until a batch has succeeded; empty if there is none.
    - `remedy`: what the service does about the error, or what the user must do; may be empty.
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
    """The jobs in `path`, a folder or a job file, at the time `at`."""

    path: str
    version: str
    at: float
    jobs: tuple[JobOverview, ...]

    def to_json(self) -> str:
        """Return a JSON document. Its keys are the names of the fields; later releases may add fields."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Restore the overview that `to_json` returned. Raises ValueError, KeyError or TypeError for anything else."""
        said = json.loads(text)
        return cls(said["path"], said["version"], said["at"], tuple(map(_job, said["jobs"])))


def _job(said: Mapping[str, Any]) -> JobOverview:
    last = None if said["last_batch"] is None else BatchProgress(**said["last_batch"])
    return JobOverview(**{**said, "last_batch": last})
