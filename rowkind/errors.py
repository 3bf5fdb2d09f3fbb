"""The root of every error that Rowkind raises on purpose.

A user meets such an error as its message alone, and a script as its exit code. Each package draws the tree of its own
below this root, in a module `errors`. An exception that is none of them and reaches the command line is a bug.
"""

from __future__ import annotations

from typing import ClassVar

FAILED = 1
"""It could not start here, or a query failed; nothing is lost, the next start does the batch again."""
REFUSED = 2
"""The job or other input is refused; the message says where and why."""
UNREACHABLE = 3
"""The broker or the registry cannot be reached."""
BUG = 4
"""A fault of Rowkind's own."""


class RowkindError(Exception):
    """Something that a user can mend; the message says what it is and what to do.

    `exit_code` is that of a command that ends with it. `retryable` says that the same may go well another time without
    anybody changing anything: a broker was away, a process was lost.
    """

    exit_code: ClassVar[int] = FAILED
    retryable: ClassVar[bool] = False
