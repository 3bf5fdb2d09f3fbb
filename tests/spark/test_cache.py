from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from rowkind.operators.arrangement.store import digest
from rowkind.service.spark import cache as cache_module
from rowkind.service.spark.cache import CacheLimits, RunCache, lies_in_memory, worker_cache

LIMITS = CacheLimits(worker=1 << 20, disk=1 << 20)


def blob(seed: int, size: int = 1000) -> pa.Buffer:
    """Return bytes that differ for each seed."""
    return pa.py_buffer(seed.to_bytes(8, "big") * (size // 8))


def test_a_blob_that_was_put_is_there(tmp_path: Path) -> None:
    """A blob that one batch puts is found by the next batch."""
    cache = RunCache(tmp_path, LIMITS)
    cache.put(digest(blob(1)), blob(1))
    assert cache.get(digest(blob(1))) == blob(1)


def test_workers_share_files(tmp_path: Path) -> None:
    """A blob that one worker has put is mapped by another worker from the same directory."""
    RunCache(tmp_path / "shared", LIMITS).put(digest(blob(1)), blob(1))
    assert RunCache(tmp_path / "shared", LIMITS).get(digest(blob(1))) == blob(1)


def test_a_missing_file_is_a_miss(tmp_path: Path) -> None:
    """A worker that has not mapped a blob yet does not find it once its file is gone."""
    RunCache(tmp_path, LIMITS).put(digest(blob(1)), blob(1))
    (tmp_path / digest(blob(1))).unlink()
    assert RunCache(tmp_path, LIMITS).get(digest(blob(1))) is None


@pytest.mark.parametrize("content", [b"", b"\0", blob(1).to_pybytes()[:-1], blob(2).to_pybytes()])
def test_a_file_that_is_not_the_blob_is_a_miss_and_goes(tmp_path: Path, content: bytes) -> None:
    """An empty, truncated or wrong file under a blob's name is a miss, and a new put replaces it."""
    name = digest(blob(1))
    (tmp_path / name).write_bytes(content)
    cache = RunCache(tmp_path, LIMITS)
    assert cache.get(name) is None
    cache.put(name, blob(1))
    assert RunCache(tmp_path, LIMITS).get(name) == blob(1)


def test_a_mapped_blob_outlives_its_file(tmp_path: Path) -> None:
    """Files may be removed while a worker still reads them."""
    cache = RunCache(tmp_path, LIMITS)
    kept = cache.put(digest(blob(1)), blob(1))
    RunCache(tmp_path, LIMITS).drop(digest(blob(1)))
    assert not list(tmp_path.iterdir())
    assert kept == blob(1)


def test_what_another_worker_has_removed_is_let_go(tmp_path: Path) -> None:
    """A run that another worker has merged is unmapped; a blob that has no file, for lack of disk space, stays."""
    cache, other = RunCache(tmp_path, LIMITS), RunCache(tmp_path, LIMITS)
    for seed in (1, 2):
        cache.put(digest(blob(seed)), blob(seed))
    large = blob(3, LIMITS.disk + 8)
    roomy = RunCache(tmp_path, CacheLimits(worker=LIMITS.worker * 4, disk=LIMITS.disk))
    roomy.put(digest(large), large)
    roomy.get(digest(blob(1)))
    other.drop(digest(blob(1)))

    for each in (cache, roomy):
        each.drop_removed()

    assert cache.get(digest(blob(1))) is None
    assert cache.get(digest(blob(2))) == blob(2)
    assert roomy.get(digest(blob(1))) is None
    assert roomy.get(digest(large)) == large


def test_a_dropped_blob_is_gone(tmp_path: Path) -> None:
    """A blob that state no longer refers to is neither on disk nor in memory."""
    cache = RunCache(tmp_path, LIMITS)
    cache.put(digest(blob(1)), blob(1))
    cache.drop(digest(blob(1)))
    assert cache.get(digest(blob(1))) is None
    cache.drop(digest(blob(1)))


def test_the_disk_limit_holds_and_the_oldest_files_go(tmp_path: Path) -> None:
    """Files stay within the limit, plus at most what one worker adds between two checks; the last used files stay."""
    cache = RunCache(tmp_path, CacheLimits(worker=0, disk=64_000))
    for seed in range(200):
        cache.put(digest(blob(seed)), blob(seed))
        os.utime(tmp_path / digest(blob(seed)), (seed, seed))
        if seed > 0:
            assert cache.get(digest(blob(0))) == blob(0), "what is used again and again stays"
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert sum(sizes) <= 64_000 + 64_000 / 16 + 1000
    assert len(sizes) > 32
    assert cache.get(digest(blob(199))) == blob(199)
    assert cache.get(digest(blob(50))) is None


def test_the_memory_limit_holds(tmp_path: Path) -> None:
    """A worker evicts the blobs that it used longest ago, and maps them again from disk."""
    cache = RunCache(tmp_path, CacheLimits(worker=10_000, disk=1 << 20))
    for seed in range(50):
        cache.put(digest(blob(seed)), blob(seed))
    assert cache._used_bytes <= 10_000
    assert sum(kept.size for kept in cache._used.values()) == cache._used_bytes
    assert cache.get(digest(blob(0))) == blob(0)


def test_a_file_is_checked_once_and_another_one_in_its_place_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State that exceeds the memory limit is mapped repeatedly, and its digest must not be computed each time."""
    checked: list[str] = []

    def counted(blob: pa.Buffer) -> str:
        checked.append(digest(blob))
        return checked[-1]

    monkeypatch.setattr(cache_module, "digest", counted)
    names = [digest(blob(seed)) for seed in range(50)]
    for seed in range(50):
        RunCache(tmp_path, LIMITS).put(names[seed], blob(seed))
    cache = RunCache(tmp_path, CacheLimits(worker=10_000, disk=1 << 20))
    for _ in range(3):
        assert [cache.get(name) for name in names] == [blob(seed) for seed in range(50)]
    assert checked == names
    other = tmp_path / "other"
    other.write_bytes(blob(7))
    other.replace(tmp_path / names[0])
    assert cache.get(names[0]) is None
    assert checked == [*names, names[7]]


def test_a_useless_disk_fails_nothing(tmp_path: Path) -> None:
    """If no file can be written, the cache works in the worker's memory alone."""
    (tmp_path / "file").write_text("in the way")
    cache = RunCache(tmp_path / "file", LIMITS)
    cache.put(digest(blob(1)), blob(1))
    assert cache.get(digest(blob(1))) == blob(1)
    assert cache.get(digest(blob(2))) is None


def test_a_worker_has_one_cache_in_the_scratch_directory_of_its_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every batch of a worker gets the same cache, under the directory that Spark removes at the end."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    cache = worker_cache(LIMITS)
    cache.put(digest(blob(1)), blob(1))
    assert worker_cache(LIMITS) is cache
    assert (tmp_path / "rowkind" / digest(blob(1))).exists()


def test_a_folder_in_memory_is_known() -> None:
    """On Linux `/dev/shm` lies in memory, and the folder of this file does not."""
    assert lies_in_memory("/dev/shm")
    assert not lies_in_memory(str(Path(__file__).parent))
