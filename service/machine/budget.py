"""How the memory that a job may take is divided among its processes.

    memory = what everything takes at rest + heap of the JVM + RocksDB + cached state + the batch under way

At rest are the JVM without its heap (270 MB), the command itself (100), the daemon of the workers (80), the one that
plans batches (90), those that Spark starts a query with and keeps for a minute (290), what the kernel has for all of
them (70), and per task two workers and a writer. The rest is shared out in fixed parts. A batch is bounded by the bytes
of its rows; on its way through a task it is there several times over: as blocks, as columns, as what comes of them.
State at hand is in mapped files, whose pages the kernel takes back when it must: what is set aside for them only has to
be kept where they lie in memory themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

_MB = 1 << 20

_AT_REST = 900 * _MB
_PER_TASK = 80 * _MB
_LEAST_TO_SHARE = 960 * _MB

_HEAP, _DIRECT, _ROCKSDB, _CACHE, _BATCH = 0.3, 0.1, 0.1, 0.2, 0.3
_LEAST_AT_ONCE = 4 * _MB
_COPIES = 8
"""How many times over the rows of a batch are in memory at most: 5 to 7 were seen."""


@dataclass(frozen=True)
class Budget:
    """Bytes of each part.

    - `heap`: of the JVM; `direct`: what it has outside of it, where blocks lie on their way.
    - `rocksdb`: of all state stores.
    - `cache`: of state that workers keep at hand, where its files lie in memory; None for as much as is useful.
    - `batch`: of the records that a batch reads.
    """

    heap: int = 512 * _MB
    direct: int = 256 * _MB
    rocksdb: int = 512 * _MB
    cache: int | None = None
    batch: int = 64 * _MB

    def at_once(self, tasks: int) -> int:
        """How much of blocks each of so many tasks may hand to its worker at once.

        A buffer that grows is there three times over: the old one, and a new one of twice its size.
        """
        return max(_LEAST_AT_ONCE, self.direct // (4 * tasks))


def least(parallelism: int) -> int:
    """Bytes with which a job of so many tasks can do at all."""
    return _AT_REST + _PER_TASK * parallelism + _LEAST_TO_SHARE


def budget(memory: int | None, parallelism: int) -> Budget:
    """The parts of so many bytes, at least `least`; without a limit those that suit most jobs."""
    if memory is None:
        return Budget()
    shared = memory - _AT_REST - _PER_TASK * parallelism
    most = Budget()
    return Budget(
        heap=int(shared * _HEAP),
        direct=int(shared * _DIRECT),
        rocksdb=min(most.rocksdb, int(shared * _ROCKSDB)),
        cache=int(shared * _CACHE),
        batch=min(most.batch, int(shared * _BATCH / _COPIES)),
    )
