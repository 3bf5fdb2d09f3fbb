"""Which number stands for a shard in Spark, so that every partition gets its even part of the shards.

State is kept by shard, of which there are as many for as long as it lives, and a partition has several of them: with
other partitions, it gets other shards. A power of two has even parts for every number of partitions that divides it.

Spark sends a group to the partition `murmur3(key) mod partitions`, and the hashes of small numbers collide: of two
shards named 0 and 1, both may meet in the first of two partitions while the second idles. So a shard is not named by
its own number but by a label whose hash leads where we want it.

The labels are part of the checkpoint: state is found under them. This file must go on giving the same ones forever.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

_SHARDS_OF_A_TASK = 4
"""As a job begins: it can go to four times as many tasks. A small batch of a join takes 10 % longer than with one shard
in each task, and with eight 40 %; at full load there is no difference."""

_MOST_SHARDS = 1024

_SEED = 42
_MASK = 0xFFFFFFFF


def usual(parallelism: int) -> int:
    """How many shards suit so many partitions, and some more."""
    return min(_MOST_SHARDS, _SHARDS_OF_A_TASK << (parallelism - 1).bit_length())


@lru_cache(maxsize=4)
def placement(shards: int) -> tuple[int, ...]:
    """A label per shard: of `shards` partitions, or of a divisor of it, shard `i` goes to the `i`-th, modulo.

    Of the labels that lead there, the smallest that is `i` modulo `shards` is taken; so a label's shard is
    `label % shards`.
    """
    return tuple(
        next(label for label in range(shard, 2**31, shards) if partition(label, shards) == shard)
        for shard in range(shards)
    )


def one_each(labels: Iterable[int], partitions: int) -> tuple[int, ...]:
    """Of these labels one that leads to each partition, as far as there is one."""
    return tuple({partition(label, partitions): label for label in labels}.values())


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
