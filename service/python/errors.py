"""What can be wrong with a function of the job's own.

FunctionError: it cannot be loaded, or does not give what the job says; no row is to blame.
"""

from __future__ import annotations

from rowkind.errors import REFUSED, RowkindError


class FunctionError(RowkindError):
    """A function in Python that is not what the job says of it. Mend the function, or the entry of `functions`."""

    exit_code = REFUSED
