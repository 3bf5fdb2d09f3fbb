"""Errors of a running job.

    RunError
    ├── CheckpointMismatchError    the checkpoint belongs to another plan
    └── QueryFailedError           a query stopped by itself

Each message ends with what the person on call should do; the command line prints it alone, without a stack trace.
"""

from __future__ import annotations

from collections.abc import Sequence


class RunError(Exception):
    """A job that cannot start or go on."""


class CheckpointMismatchError(RunError):
    """The checkpoint was written by another plan, whose state the new one would misread."""

    def __init__(self, folder: str, changed: Sequence[str]) -> None:
        self.folder = folder
        self.changed = tuple(changed)
        lines = "\n".join(f"  {line}" for line in changed)
        super().__init__(
            f"the checkpoint {folder} belongs to another plan:\n{lines}\n"
            "Point `checkpoint` at a new folder, undo the change, or start over with --reset-state "
            "(deletes state and offsets; the topics are read again from where the job says)."
        )


class QueryFailedError(RunError):
    """A streaming query stopped by itself.

    `reason` is the message of the exception that was raised in a task, and `error` its class if it is one of ours.
    """

    def __init__(self, sink: str, reason: str, error: str | None) -> None:
        self.sink = sink
        self.reason = reason
        self.error = error
        super().__init__(
            f"the query of sink {sink} failed: {reason}\n"
            "Nothing is lost: the batch was not committed and is done again at the next start."
        )
