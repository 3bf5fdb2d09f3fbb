"""The base class of all errors that Rowkind raises on purpose.

Users see only the error's message, and scripts see only its exit code. Each package documents its tree of errors in a
module `errors`. Any other exception that reaches the command line is a bug.
"""

from __future__ import annotations

from typing import ClassVar

FAILED = 1
"""The job could not start on this machine, or a query failed. Nothing is lost: the next start repeats the batch."""
REFUSED = 2
"""The job or other input is refused. The message says where and why."""
UNREACHABLE = 3
"""The broker or the registry cannot be reached."""
BUG = 4
"""A bug in Rowkind."""
NO_SPACE = "No space left on device"
"""The operating system's message about a full disk, which Java repeats."""


class RowkindError(Exception):
    """An error that a user can fix; the message says what is wrong and what to do.

    `exit_code` is the exit code of a command that ends with this error. `retryable`: the same action may succeed later
    without any change, because a broker was unavailable or a process was lost.
    """

    exit_code: int = FAILED
    retryable: ClassVar[bool] = False

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the message, without a stack trace through Rowkind's own code."""
        return [f"{type(self).__name__}: {self}"]
