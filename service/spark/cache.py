"""Blobs that a worker has seen before, kept where reading them again costs nothing.

A blob's name is the digest of its content, so what is cached can be missing but never stale. Blobs lie as files on the
executor's local disk, shared by all its workers, and each worker maps the ones it uses; the pages are the operating
system's and are counted once. The directory is Spark's own for the application, which removes it in the end.

A file is written under another name and then renamed, so that nobody sees half of one. Even so it is trusted only once
its digest has been checked, when a worker first maps it: a file that is missing, cut short or somebody else's is a
cache miss, and the blob comes from the state store. Where there is more state than a worker may keep mapped, it maps
files again and again, and does not look at those that it has checked. A batch that fails leaves files that nothing
refers to; they go when the space is needed. A disk that is full or read-only makes the cache smaller, and fails
nothing.
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
"""A worker looks through the directory each time it has added this fraction of its limit."""

DISK = 8 << 30
_SHARE = 4
"""Bytes of files where no limit is set, or what fraction of the disk's room, if that is more."""


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Bytes that each worker keeps mapped or in memory, and bytes of files that an executor keeps on its disk.

    Zero turns either off. None: as much of the disk as does no harm, and state can use.
    """

    worker: int = 1 << 30
    disk: int | None = None


DEFAULT_LIMITS = CacheLimits()


class RunCache:
    """The cached blobs of one worker and the directory that it shares with its executor's other workers."""

    def __init__(self, directory: Path, limits: CacheLimits) -> None:
        self._directory = directory
        self._limits = limits
        self._used: OrderedDict[str, pa.Buffer] = OrderedDict()
        self._used_bytes = 0
        self._mapped: set[str] = set()
        self._checked: dict[str, tuple[int, int]] = {}
        self._added = 0

    def get(self, name: str) -> pa.Buffer | None:
        """The blob of this name if it is at hand, checked against its name."""
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
        """Keep a blob that was just written to or read from the state store; gives the blob as it is now kept."""
        kept = self._used.get(name)
        if kept is not None:
            self._used.move_to_end(name)
            return kept
        written = self._write(name, blob)
        kept = written or blob
        self._keep(name, kept, mapped=written is not None)
        return kept

    def drop(self, name: str) -> None:
        """Remove a blob that state no longer refers to."""
        self._release(name)
        self._checked.pop(name, None)
        with suppress(OSError):
            (self._directory / name).unlink()

    def drop_removed(self) -> None:
        """Drop the files that another worker has removed after it merged their runs, and their pages with them."""
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
        """The blob as a mapped file, or None if the disk would not have it."""
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
        """Remove the files that were used longest ago until the directory is within its limit. Raises no OSError."""
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
    """The content of a file as a view of the page cache, or None if there is no such file with anything in it."""
    try:
        with pa.memory_map(str(path)) as source:
            return source.read_buffer()
    except OSError:
        return None


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one that has taken its place."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size


def scratch() -> str:
    """Where caches lie: Spark tells its workers of the application's directories; outside of one it is the system's."""
    return os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]


def lies_in_memory(folder: str) -> bool:
    """Whether the files of a folder take memory and not a disk's blocks."""
    kinds = {point: kind for _, point, kind, *_ in map(str.split, Path("/proc/mounts").read_text().splitlines())}
    around = [str(each) for each in (Path(folder).resolve() / "file").parents]
    return next(kinds[each] for each in around if each in kinds) in {"tmpfs", "ramfs"}


_caches: dict[tuple[str, CacheLimits], RunCache] = {}


def worker_cache(limits: CacheLimits) -> RunCache:
    """This worker's cache, the same one for every batch that it runs."""
    at = (scratch(), limits)
    if at not in _caches:
        _caches[at] = RunCache(Path(scratch()) / "rowkind", limits)
    return _caches[at]
