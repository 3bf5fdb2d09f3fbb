"""Errors of a job's Python functions.

FunctionError: the function cannot be loaded, or its result differs from its declaration. The cause is never a row.
"""

from __future__ import annotations

from rowkind.errors import REFUSED, RowkindError


class FunctionError(RowkindError):
    """A Python function does not match its declaration in the job. Fix the function, or its entry in `functions`."""

    exit_code = REFUSED
