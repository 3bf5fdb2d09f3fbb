"""Divides a job's memory among its processes.

    memory = fixed use at rest + heap of the JVM + RocksDB + cached state + the current batch

The fixed use at rest, in MB, consists of the JVM without its heap (270), the command (100), the workers' daemon (80)
and the process that plans batches (90). Spark starts further processes with a query and keeps them for a minute (290).
The kernel's memory for all of these processes is 70 MB. Each task adds two workers and a producer process. The rest is
divided in fixed shares. A batch is limited by the size of its rows in bytes. A task has several copies of these rows:
as blocks, as columns, as results. Cached state is in mapped files, whose pages the kernel can reclaim. Its share is
therefore a limit only if the files themselves are in memory.
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
"""The largest number of copies of a batch's rows in memory: 5 to 7 were measured."""


@dataclass(frozen=True)
class Budget:
    """The size of each part of a job's memory, in bytes.

    - `heap`: the JVM's heap. `direct`: the JVM's memory outside the heap, for blocks in transit.
    - `rocksdb`: all state stores together.
    - `cache`: the state that workers cache, if the files are in memory; None for as much as is useful.
    - `batch`: the records that a batch reads.
    """

    heap: int = 512 * _MB
    direct: int = 256 * _MB
    rocksdb: int = 512 * _MB
    cache: int | None = None
    batch: int = 64 * _MB

    def at_once(self, tasks: int) -> int:
        """Return the bytes of blocks that each of `tasks` tasks may pass to its worker at once.

        While a buffer grows, it takes three times its size: the old buffer, and a new buffer of twice the size.
        """
        return max(_LEAST_AT_ONCE, self.direct // (4 * tasks))


def least(parallelism: int) -> int:
    """Return the minimum memory, in bytes, of a job with this parallelism."""
    return _AT_REST + _PER_TASK * parallelism + _LEAST_TO_SHARE


def budget(memory: int | None, parallelism: int) -> Budget:
    """Divide `memory` bytes, at least `least`, into parts. If `memory` is None, return parts that suit most jobs."""
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
