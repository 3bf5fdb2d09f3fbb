"""The manifest of an arrangement: the segments of its runs, and the progress of its merges.

The manifest is the only blob that is ever replaced. It consists of a header line with the name and version of the
format, followed by JSON. An entry's *place* is its 64-bit sort position within a run (`operators.arrangement.layout`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import pyarrow as pa

from rowkind.operators.arrangement.store import MANIFEST
from rowkind.operators.errors import StateCorrupted, StateFormatUnknown

FORMAT = b"rowkind manifest 1\n"


class SegmentInfo(NamedTuple):
    """The properties of a segment that are known without reading the segment.

    `first` and `last` are the places of the segment's first and last rows. `newest` is the latest written_at of its
    rows.
    """

    name: str
    rows: int
    bytes: int
    first: int
    last: int
    newest: int


@dataclass(slots=True)
class Run:
    """A run: consecutive segments in order of (place, seq)."""

    number: int
    segments: list[SegmentInfo]

    @property
    def rows(self) -> int:
        """The number of rows in all segments."""
        return sum(segment.rows for segment in self.segments)

    @property
    def bytes(self) -> int:
        """The size of all segments in bytes."""
        return sum(segment.bytes for segment in self.segments)


@dataclass(slots=True)
class Merge:
    """A merge in progress: the numbers of the runs that it reads, and the segments that it has written so far.

    All entries up to and including the (place, seq) `cursor` have been merged, and `weight` is the sum of the weights
    written. Until the merge is complete, lookups read the input runs. `whole` is true if the merge, when it began, had
    all runs as inputs.
    """

    inputs: list[int]
    cursor: tuple[int, int] | None = None
    weight: int = 0
    done: list[SegmentInfo] = field(default_factory=list)
    whole: bool = False


@dataclass(slots=True)
class Manifest:
    """An arrangement's state, except for the rows themselves.

    `weight` is the sum of the weights of all entries ever appended, minus the weight of rows that are known to have
    expired. If `weight` is zero, there are no live rows, because the weights of equal rows never have a negative sum.
    """

    weight: int = 0
    next_run: int = 0
    runs: list[Run] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)

    @property
    def segments(self) -> Iterator[SegmentInfo]:
        """All segments, including the segments that unfinished merges have written."""
        for run in self.runs:
            yield from run.segments
        for merge in self.merges:
            yield from merge.done

    def add_run(self, segments: list[SegmentInfo]) -> None:
        """Add a run with the given segments; without segments, do nothing."""
        if segments:
            self.runs.append(Run(self.next_run, segments))
            self.next_run += 1

    def to_blob(self) -> pa.Buffer:
        """Serialize this manifest as a blob."""
        value = {
            "weight": self.weight,
            "next_run": self.next_run,
            "runs": [[run.number, run.segments] for run in self.runs],
            "merges": [[merge.inputs, merge.cursor, merge.weight, merge.done, merge.whole] for merge in self.merges],
        }
        return pa.py_buffer(FORMAT + json.dumps(value, separators=(",", ":")).encode())

    @classmethod
    def from_blob(cls, blob: pa.Buffer, arrangement: str) -> Self:
        """Return the manifest in `blob`. Raises `StateFormatUnknown` or `StateCorrupted`."""
        header, newline, text = blob.to_pybytes().partition(b"\n")
        if header + newline != FORMAT:
            raise StateFormatUnknown(arrangement, MANIFEST, header[:64].decode("ascii", "replace"), FORMAT.decode())
        try:
            value: dict[str, Any] = json.loads(text)
            return cls(
                value["weight"],
                value["next_run"],
                [Run(number, _infos(segments)) for number, segments in value["runs"]],
                [
                    Merge(inputs, cursor and tuple(cursor), weight, _infos(done), whole)
                    for inputs, cursor, weight, done, whole in value["merges"]
                ],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise StateCorrupted(arrangement, MANIFEST, repr(error)) from error


def _infos(values: list[list[Any]]) -> list[SegmentInfo]:
    return [SegmentInfo(*value) for value in values]
