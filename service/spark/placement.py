"""Which number stands for a shard in Spark, so that every partition gets its even part of the shards.

Spark sends a group to the partition `murmur3(key) mod partitions`, and the hashes of small numbers collide: of two
shards named 0 and 1, both may meet in the first of two partitions while the second idles. So a shard is not named by
its own number but by a label whose hash leads where we want it.

The labels are part of the checkpoint: state is found under them. This file must go on giving the same ones forever.
"""

from __future__ import annotations

_SEED = 42
_MASK = 0xFFFFFFFF


def placement(shards: int, partitions: int) -> list[int]:
    """A label per shard: shard `i` goes to partition `i mod partitions`.

    Of the labels that lead there, the smallest that is `i` modulo `shards` is taken; so a label's shard is
    `label % shards`.
    """
    return [
        next(label for label in range(shard, 2**31, shards) if partition(label, partitions) == shard % partitions)
        for shard in range(shards)
    ]


def partition(label: int, partitions: int) -> int:
    """The partition to which Spark's hash partitioning sends an int column of this value."""
    digest = _murmur3(label)
    return (digest - (1 << 32) if digest >= 1 << 31 else digest) % partitions


def _murmur3(value: int) -> int:
    """MurmurHash3 x86 32 bit of the four bytes of an int, as in Spark's `Murmur3_x86_32.hashInt`, unsigned."""
    mixed = value * 0xCC9E2D51 & _MASK
    mixed = _rotate(mixed, 15) * 0x1B873593 & _MASK
    digest = (_rotate(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    digest ^= 4
    digest = (digest ^ digest >> 16) * 0x85EBCA6B & _MASK
    digest = (digest ^ digest >> 13) * 0xC2B2AE35 & _MASK
    return digest ^ digest >> 16


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
