# ruff: noqa: N818 - the leaf classes are named for what happened, like the rest of the vocabulary
"""Errors in an operator that are not bugs in it.

    OperatorError
    ├── StateError
    │   ├── StateLost              a blob that the manifest names is not in the store
    │   ├── StateCorrupted         a blob exists, but is not what was written
    │   └── StateFormatUnknown     a blob was written by another release
    ├── RowFailed                  a function fails, a scalar subquery has several rows, or a match cannot skip on
    └── BatchTooLarge              one batch of one shard emits more bytes than one Arrow array can hold

Violations of contracts inside Rowkind are assertions. Changes that contradict the state are not errors: they are
returned as unmatched.
"""

from __future__ import annotations

from rowkind.errors import RowkindError


class OperatorError(RowkindError):
    """Base class of all errors that an operator raises on purpose."""


class StateError(OperatorError):
    """The state of a shard cannot be used; `arrangement` and `blob` say where."""

    def __init__(self, message: str, arrangement: str, blob: str) -> None:
        super().__init__(message)
        self.arrangement = arrangement
        self.blob = blob


class StateLost(StateError):
    """A segment that has not expired is missing from the store.

    On call: the checkpoint is damaged or was restored in part. Restore it whole, or start from an empty checkpoint.
    """

    def __init__(self, arrangement: str, blob: str) -> None:
        super().__init__(
            f"The state of '{arrangement}' names blob {blob}, which is not in the state store. The checkpoint is "
            "damaged or was restored in part: restore it whole, or start the job from an empty checkpoint.",
            arrangement,
            blob,
        )


class StateCorrupted(StateError):
    """A blob differs from the content that was written.

    On call: look for disk faults on the checkpoint's storage, then restore the checkpoint or start from an empty one.
    """

    def __init__(self, arrangement: str, blob: str, reason: str) -> None:
        super().__init__(
            f"Blob {blob} of '{arrangement}' is not what was written ({reason}). Restore the checkpoint, or start the "
            "job from an empty one.",
            arrangement,
            blob,
        )


class StateFormatUnknown(StateError):
    """A blob was written in a format that this release does not know.

    On call: run the release that wrote the checkpoint, or start from an empty checkpoint.
    """

    def __init__(self, arrangement: str, blob: str, found: str, known: str) -> None:
        super().__init__(
            f"Blob {blob} of '{arrangement}' begins with {found!r}; this release reads {known!r}. Run the release that "
            "wrote the checkpoint, or start the job from an empty one.",
            arrangement,
            blob,
        )


class RowFailed(OperatorError):
    """A row of the batch makes the requested computation fail; `seq` is the row's arrival number.

    `row` is the row's index in the computed rows, or -1 if no computed row failed. Both are -1 if a function failed on
    a whole group. `advice` is a sentence without its full stop.

    On call: follow the advice. Do not skip the row: it could not be retracted later.
    """

    def __init__(
        self, text: str, row: int, seq: int = -1, advice: str = "Mend the function, or leave such rows out by WHERE"
    ) -> None:
        super().__init__(text)
        self.text = text
        self.row = row
        self.seq = seq
        self.advice = advice

    def came_with(self, seq: int) -> RowFailed:
        """Return the same error for a row with this arrival number."""
        return RowFailed(self.text, self.row, seq, self.advice)

    def __reduce__(self) -> tuple[type[RowFailed], tuple[str, int, int, str]]:
        return type(self), (self.text, self.row, self.seq, self.advice)


class BatchTooLarge(OperatorError):
    """One batch of one shard emits more bytes of rows than one Arrow array can hold.

    On call: lower the rows per batch, raise the number of shards, or look for a join key with very many rows on both
    sides.
    """

    def __init__(self, rows: int, size: int) -> None:
        super().__init__(
            f"One batch of one shard gives {rows} rows with {size} bytes, more than fits into one block. Lower the "
            "rows per batch, or look for a join key that has very many rows on both sides."
        )
        self.rows = rows
        self.size = size
