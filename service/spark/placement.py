"""Labels for Spark's shards, chosen so that every partition gets the same number of shards.

State is kept by shard. The number of shards is fixed for the life of the state, and a partition has several of them.
When the number of partitions changes, the shards are redistributed. If the number of shards is a power of two, shares
are equal for every number of partitions that divides it.

Spark sends a group to the partition `murmur3(key) mod partitions`, and the hashes of small numbers collide: two shards
with the keys 0 and 1 may both be sent to the first of two partitions, while the second is idle. So a shard's key is not
its number, but a label whose hash selects the intended partition.

The labels are part of the checkpoint, because they are the keys of the state. This module must never return different
labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

_SHARDS_OF_A_TASK = 4
"""Shards per task when a job begins. The job can later grow to four times as many tasks. With four shards per task, a
small batch of a join takes 10% longer than with one; with eight, 40%. At full load there is no difference.
"""

_MOST_SHARDS = 1024

_SEED = 42
_MASK = 0xFFFFFFFF


def usual(parallelism: int) -> int:
    """Return a suitable number of shards for this number of partitions, which leaves room to grow."""
    return min(_MOST_SHARDS, _SHARDS_OF_A_TASK << (parallelism - 1).bit_length())


@lru_cache(maxsize=4)
def placement(shards: int) -> tuple[int, ...]:
    """Return a label for each shard. For any number of partitions that divides `shards`, shards are spread evenly.

    With `n` partitions, shard `i` is in partition `i % n`. A shard's label is the smallest number that Spark sends to
    these partitions and that equals `i` modulo `shards`. So a label's shard is `label % shards`.
    """
    return tuple(
        next(label for label in range(shard, 2**31, shards) if partition(label, shards) == shard)
        for shard in range(shards)
    )


def one_each(labels: Iterable[int], partitions: int) -> tuple[int, ...]:
    """Return one of the given labels for each partition that contains any of them."""
    return tuple({partition(label, partitions): label for label in labels}.values())


def partition(label: int, partitions: int) -> int:
    """Return the partition to which Spark's hash partitioning sends an int column with the value `label`."""
    digest = _murmur3(label)
    return (digest - (1 << 32) if digest >= 1 << 31 else digest) % partitions


def _murmur3(value: int) -> int:
    """Return the unsigned MurmurHash3 x86 32 bit of an int's four bytes, as in Spark's `Murmur3_x86_32.hashInt`."""
    mixed = value * 0xCC9E2D51 & _MASK
    mixed = _rotate(mixed, 15) * 0x1B873593 & _MASK
    digest = (_rotate(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    digest ^= 4
    digest = (digest ^ digest >> 16) * 0x85EBCA6B & _MASK
    digest = (digest ^ digest >> 13) * 0xC2B2AE35 & _MASK
    return digest ^ digest >> 16


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
