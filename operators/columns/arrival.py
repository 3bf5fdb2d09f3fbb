"""Arrival numbers: a change's position among the changes of its table, as a sortable int64.

The upper bits are the offset, so the changes of a partition have the same order as in the topic. The lower bits are the
partition number, so several partitions are interleaved in the same way in every replay. Errors and dead letters use the
offset and the partition number to locate the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

PARTITION_BITS = 16
"""The number of bits for the partition number. They suffice for 65,536 partitions, and leave 47 bits for the offset."""

_PARTITION = (1 << PARTITION_BITS) - 1


@dataclass(frozen=True, slots=True)
class ArrivalNumber:
    """A change's offset and partition number, unpacked; in a column, the two are packed into a single number."""

    offset: int
    partition: int

    @classmethod
    def of(cls, seq: int) -> Self:
        """Unpack an arrival number."""
        return cls(seq >> PARTITION_BITS, seq & _PARTITION)

    @staticmethod
    def pack(offsets: npt.NDArray[np.int64], partitions: npt.NDArray[np.int64] | int = 0) -> npt.NDArray[np.int64]:
        """Return the packed arrival numbers for the given offsets and partition numbers."""
        return offsets << PARTITION_BITS | partitions

    @staticmethod
    def partitions(seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the partition numbers of packed arrival numbers."""
        return seqs & _PARTITION

    @staticmethod
    def offsets(seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the offsets of packed arrival numbers."""
        return seqs >> PARTITION_BITS
