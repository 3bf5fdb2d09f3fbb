"""The manifest of an arrangement: the segments of its runs, and the progress of its merges.

It is the only blob that is replaced with every batch: a header line with the format and its version, then JSON. A
*place* in it is the 64-bit position of an entry in the order of a run (`operators.arrangement.layout`).
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
    """The properties of a segment that are known without reading it.

    `first` and `last` are the places of its first and last row; `newest` is the latest written_at of its rows.
    """

    name: str
    rows: int
    bytes: int
    first: int
    last: int
    newest: int


@dataclass(slots=True)
class Run:
    """Consecutive segments in order of (place, seq)."""

    number: int
    segments: list[SegmentInfo]

    @property
    def rows(self) -> int:
        """The number of rows of all segments."""
        return sum(segment.rows for segment in self.segments)

    @property
    def bytes(self) -> int:
        """The number of bytes of all segments."""
        return sum(segment.bytes for segment in self.segments)


@dataclass(slots=True)
class Merge:
    """A merge in progress: the runs that it reads, by number, and the segments that it has written so far.

    Everything up to and including `cursor`, a (place, seq), has been merged; `weight` is the sum of the weights
    written. Lookups read the inputs until the merge is complete. `whole`: the inputs were all runs when the merge
    began.
    """

    inputs: list[int]
    cursor: tuple[int, int] | None = None
    weight: int = 0
    done: list[SegmentInfo] = field(default_factory=list)
    whole: bool = False


@dataclass(slots=True)
class Manifest:
    """The state of an arrangement, apart from the rows.

    `weight` is the sum of the weights of all entries ever appended, minus those known to be gone. Zero means that
    nothing is live, because no entry's own sum is ever negative.
    """

    weight: int = 0
    next_run: int = 0
    runs: list[Run] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)

    @property
    def segments(self) -> Iterator[SegmentInfo]:
        """All segments, including those that merges have written."""
        for run in self.runs:
            yield from run.segments
        for merge in self.merges:
            yield from merge.done

    def add_run(self, segments: list[SegmentInfo]) -> None:
        """Add a run of these segments, unless there are none."""
        if segments:
            self.runs.append(Run(self.next_run, segments))
            self.next_run += 1

    def to_blob(self) -> pa.Buffer:
        """Return this manifest as a blob."""
        value = {
            "weight": self.weight,
            "next_run": self.next_run,
            "runs": [[run.number, run.segments] for run in self.runs],
            "merges": [[merge.inputs, merge.cursor, merge.weight, merge.done, merge.whole] for merge in self.merges],
        }
        return pa.py_buffer(FORMAT + json.dumps(value, separators=(",", ":")).encode())

    @classmethod
    def from_blob(cls, blob: pa.Buffer, arrangement: str) -> Self:
        """Return the manifest in `blob`. Raises `StateFormatUnknown` and `StateCorrupted`."""
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
