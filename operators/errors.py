# ruff: noqa: N818 - the leaf classes are named for what happened, like the rest of the vocabulary
"""Errors that an operator raises for reasons other than a bug.

    OperatorError
    ├── StateError
    │   ├── StateLost              a blob that the manifest names is not in the store
    │   ├── StateCorrupted         a blob's content differs from what was written
    │   └── StateFormatUnknown     a blob has a format that this release does not know
    ├── RowFailed                  a function fails, a scalar subquery has several rows, or AFTER MATCH SKIP fails
    └── BatchTooLarge              a shard emits more bytes in one batch than one Arrow array can hold

A violation of one of Rowkind's internal contracts is an assertion failure. A change that contradicts the state is not
an error; the operator returns it as unmatched.
"""

from __future__ import annotations

from rowkind.errors import RowkindError


class OperatorError(RowkindError):
    """Base class of all errors that an operator raises deliberately."""


class StateError(OperatorError):
    """Base class of errors in a shard's stored state. `arrangement` and `blob` name the missing or unreadable blob."""

    def __init__(self, message: str, arrangement: str, blob: str) -> None:
        super().__init__(message)
        self.arrangement = arrangement
        self.blob = blob


class StateLost(StateError):
    """A segment that has not expired is missing from the store.

    The checkpoint is damaged or only partly restored. Restore the whole checkpoint, or start from an empty one.
    """

    def __init__(self, arrangement: str, blob: str) -> None:
        super().__init__(
            f"The state of '{arrangement}' refers to blob {blob}, which is not in the state store. The checkpoint is "
            "damaged or only partly restored. Restore the whole checkpoint, or start the job from an empty one.",
            arrangement,
            blob,
        )


class StateCorrupted(StateError):
    """A blob's content differs from what was written.

    Check the checkpoint's storage for disk faults. Then restore the checkpoint, or start from an empty one.
    """

    def __init__(self, arrangement: str, blob: str, reason: str) -> None:
        super().__init__(
            f"Blob {blob} of '{arrangement}' differs from what was written ({reason}). Restore the checkpoint, or "
            "start the job from an empty one.",
            arrangement,
            blob,
        )


class StateFormatUnknown(StateError):
    """A blob was written in a format that this release does not know.

    Run the release that wrote the checkpoint, or rebuild the state from the topics.
    """

    def __init__(self, arrangement: str, blob: str, found: str, known: str) -> None:
        super().__init__(
            f"Blob {blob} of '{arrangement}' begins with {found!r}, but this release reads {known!r}. Run the release "
            "that wrote the checkpoint, or start the job with `--reset-state`, which rebuilds the state.",
            arrangement,
            blob,
        )


class RowFailed(OperatorError):
    """The query could not be computed for a row of the batch; `seq` is the row's arrival number.

    Follow the advice in the message. The row cannot be skipped, because a skipped row could not be retracted later.
    """

    def __init__(
        self, text: str, row: int, seq: int = -1, advice: str = "Fix the function, or exclude such rows with WHERE"
    ) -> None:
        super().__init__(text)
        self.text = text
        self.row = row
        """The row's index among the computed rows, or -1 if none of them failed."""
        self.seq = seq
        """The row's arrival number. If a function failed for a group instead of a row, `row` and `seq` are both -1."""
        self.advice = advice
        """What the user can do about the error, as a sentence without a full stop."""

    def came_with(self, seq: int) -> RowFailed:
        """Return a copy of this error with `seq` as the row's arrival number."""
        return RowFailed(self.text, self.row, seq, self.advice)

    def __reduce__(self) -> tuple[type[RowFailed], tuple[str, int, int, str]]:
        return type(self), (self.text, self.row, self.seq, self.advice)


class BatchTooLarge(OperatorError):
    """A shard emits more bytes in one batch than one Arrow array can hold.

    Lower `batch.max_rows`, increase the number of shards, or look for a join key that has very many rows on both sides.
    """

    def __init__(self, rows: int, size: int) -> None:
        super().__init__(
            f"One batch of one shard emits {rows} rows with {size} bytes, which is more than one block can hold. Lower "
            "`batch.max_rows`, or look for a join key that has very many rows on both sides."
        )
        self.rows = rows
        self.size = size
