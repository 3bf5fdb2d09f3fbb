"""Arrival numbers: where a change stands among those of its table, as one int64 that orders them.

The offset comes first, so that of one partition the order is the topic's; of several it is an interleaving that is the
same in every replay. The lower bits hold the partition, which finds the record again: for errors and dead letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

PARTITION_BITS = 16
"""More partitions than this holds, 65,536, no topic has; offsets have 47 bits left."""

_PARTITION = (1 << PARTITION_BITS) - 1


@dataclass(frozen=True, slots=True)
class ArrivalNumber:
    """The offset and the partition of a change, apart; columns hold both in one."""

    offset: int
    partition: int

    @classmethod
    def of(cls, seq: int) -> Self:
        """What a column's value says."""
        return cls(seq >> PARTITION_BITS, seq & _PARTITION)

    @staticmethod
    def pack(offsets: npt.NDArray[np.int64], partitions: npt.NDArray[np.int64] | int = 0) -> npt.NDArray[np.int64]:
        """The numbers of changes with these offsets and partitions."""
        return offsets << PARTITION_BITS | partitions

    @staticmethod
    def partitions(seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The partitions of changes with these numbers."""
        return seqs & _PARTITION
