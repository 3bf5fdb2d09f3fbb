"""A worker's cache of state blobs, stored on the executor's local disk and mapped into memory.

A blob's name is the digest of its content, so a cached blob can be missing but never stale. Blobs are files on the
executor's local disk, shared by all its workers. Each worker maps the files that it uses. The mapped pages belong to
the operating system and are counted once. The directory belongs to the Spark application. Spark removes it when the
application ends.

A file is written under a temporary name and then renamed, so that no reader sees a partial file. Even so, a worker
trusts a file only after checking its digest, when the worker first maps the file. A file that is missing, truncated or
not a blob counts as a cache miss, and the blob is read from the state store. If there is more state than a worker may
keep mapped, it maps files repeatedly, but does not check them again. A batch that fails leaves unreferenced files,
which are removed when space is needed. A disk that is full or read-only makes the cache smaller, but causes no failure.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from rowkind.operators.arrangement.store import digest

_SCAN_AFTER = 16
"""A worker scans the directory each time it has added 1/`_SCAN_AFTER` of its limit."""

DISK = 8 << 30
_SHARE = 4
"""If no limit is set, an executor's files take up to `DISK` bytes. They may take more if the disk has much free space:
up to 1/`_SHARE` of the sum of the free space and the files' size.
"""


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The limits of a cache in bytes. Zero turns a part of the cache off.

    - `worker`: what each worker keeps mapped or in memory.
    - `disk`: the files that an executor keeps on its disk; None for a default derived from the disk's free space.
    """

    worker: int = 1 << 30
    disk: int | None = None


DEFAULT_LIMITS = CacheLimits()


class RunCache:
    """The cached blobs of one worker, and the directory that it shares with its executor's other workers."""

    def __init__(self, directory: Path, limits: CacheLimits) -> None:
        self._directory = directory
        self._limits = limits
        self._used: OrderedDict[str, pa.Buffer] = OrderedDict()
        self._used_bytes = 0
        self._mapped: set[str] = set()
        self._checked: dict[str, tuple[int, int]] = {}
        self._added = 0

    def get(self, name: str) -> pa.Buffer | None:
        """Return the blob with this name, or None if it is not cached. The blob's digest is checked."""
        blob = self._used.get(name)
        if blob is not None:
            self._used.move_to_end(name)
            return blob
        path = self._directory / name
        blob = None if self._limits.disk == 0 else _map(path)
        if blob is None:
            return None
        with suppress(OSError):
            os.utime(path)
        file = _identity(path)
        if file is None or self._checked.get(name) != file:
            if digest(blob) != name:
                path.unlink(missing_ok=True)
                return None
            if file is not None:
                self._checked[name] = file
        self._keep(name, blob, mapped=True)
        return blob

    def put(self, name: str, blob: pa.Buffer) -> pa.Buffer:
        """Cache a blob that was just written to or read from the state store. Return the cached blob."""
        kept = self._used.get(name)
        if kept is not None:
            self._used.move_to_end(name)
            return kept
        written = self._write(name, blob)
        kept = written or blob
        self._keep(name, kept, mapped=written is not None)
        return kept

    def drop(self, name: str) -> None:
        """Remove a blob to which the state no longer refers."""
        self._release(name)
        self._checked.pop(name, None)
        with suppress(OSError):
            (self._directory / name).unlink()

    def drop_removed(self) -> None:
        """Drop files that another worker has removed after merging the runs in them, and release their pages."""
        try:
            there = {path.name for path in self._directory.iterdir()}
        except OSError:
            return
        for name in self._mapped - there:
            self._release(name)
        for name in self._checked.keys() - there:
            del self._checked[name]

    def _keep(self, name: str, blob: pa.Buffer, *, mapped: bool) -> None:
        self._used[name] = blob
        self._used_bytes += blob.size
        if mapped:
            self._mapped.add(name)
        while self._used_bytes > self._limits.worker:
            self._release(next(iter(self._used)))

    def _release(self, name: str) -> None:
        blob = self._used.pop(name, None)
        if blob is not None:
            self._used_bytes -= blob.size
            self._mapped.discard(name)

    def _write(self, name: str, blob: pa.Buffer) -> pa.Buffer | None:
        """Write the blob to a file, and return the mapped file, or None if the file cannot be written."""
        limit = DISK if self._limits.disk is None else self._limits.disk
        if not blob.size or blob.size > limit:
            return None
        path = self._directory / name
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            draft = self._directory / f".{name}.{os.getpid()}"
            try:
                draft.write_bytes(blob)
                draft.replace(path)
            except OSError:
                draft.unlink(missing_ok=True)
                raise
        except OSError:
            return None
        self._added += blob.size
        if self._added > limit // _SCAN_AFTER:
            self._added = 0
            self._evict()
        return _map(path)

    def _evict(self) -> None:
        """Remove the least recently used files until the directory is within its limit. Errors are ignored."""
        files: list[tuple[int, int, Path]] = []
        with suppress(OSError), os.scandir(self._directory) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat()
                    files.append((status.st_mtime_ns, status.st_size, Path(entry.path)))
        kept, limit = sum(size for _, size, _ in files), self._limits.disk
        if limit is None:
            limit = DISK
            with suppress(OSError):
                limit = max(limit, (shutil.disk_usage(self._directory).free + kept) // _SHARE)
        excess = kept - limit
        for _, size, path in sorted(files):
            if excess <= 0:
                break
            with suppress(OSError):
                path.unlink()
            excess -= size


def _map(path: Path) -> pa.Buffer | None:
    """Return the content of a file as a view of the page cache, or None if the file is missing or empty."""
    try:
        with pa.memory_map(str(path)) as source:
            return source.read_buffer()
    except OSError:
        return None


def _identity(path: Path) -> tuple[int, int] | None:
    """Return a value that distinguishes a file from a file that replaces it, or None if the file is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size


def scratch() -> str:
    """Return the folder for caches: the application's first local directory, or else the system's temporary folder."""
    return os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]


def lies_in_memory(folder: str) -> bool:
    """Return whether a folder's files are stored in memory rather than on disk."""
    kinds = {point: kind for _, point, kind, *_ in map(str.split, Path("/proc/mounts").read_text().splitlines())}
    around = [str(each) for each in (Path(folder).resolve() / "file").parents]
    return next(kinds[each] for each in around if each in kinds) in {"tmpfs", "ramfs"}


_caches: dict[tuple[str, CacheLimits], RunCache] = {}


def worker_cache(limits: CacheLimits) -> RunCache:
    """Return this worker's cache, which is the same for all of the worker's batches."""
    at = (scratch(), limits)
    if at not in _caches:
        _caches[at] = RunCache(Path(scratch()) / "rowkind", limits)
    return _caches[at]
