"""Arrival numbers: the position of a change among the changes of its table, as one int64 that orders them.

The offset is in the upper bits, so within one partition the order is the topic's. Several partitions are interleaved in
the same way in every replay. The lower bits are the partition. Errors and dead letters use both to find the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

PARTITION_BITS = 16
"""No topic has more partitions than this holds, 65,536; 47 bits are left for offsets."""

_PARTITION = (1 << PARTITION_BITS) - 1


@dataclass(frozen=True, slots=True)
class ArrivalNumber:
    """The offset and the partition of a change as separate numbers; a column packs both into one."""

    offset: int
    partition: int

    @classmethod
    def of(cls, seq: int) -> Self:
        """Return the arrival number that a column's value packs."""
        return cls(seq >> PARTITION_BITS, seq & _PARTITION)

    @staticmethod
    def pack(offsets: npt.NDArray[np.int64], partitions: npt.NDArray[np.int64] | int = 0) -> npt.NDArray[np.int64]:
        """Return the packed numbers of changes with these offsets and partitions."""
        return offsets << PARTITION_BITS | partitions

    @staticmethod
    def partitions(seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the partitions of changes with these packed numbers."""
        return seqs & _PARTITION
