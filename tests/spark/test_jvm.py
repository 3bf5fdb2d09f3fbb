from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pyspark
import pytest

from rowkind.cache import NO_NEW_ARCHIVE
from rowkind.service.machine.jars import java
from rowkind.service.spark.java_classes import class_archive, keep, pack
from rowkind.service.spark.jvm import MODULE_OPTIONS, temporary_folder

JARS = Path(pyspark.__file__).parent / "jars"


def test_java_gets_the_options_of_sparks_own_launcher() -> None:
    """All options but the memory and the incubating module are the same, so that changes in Spark are noticed."""
    launcher = ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
    environment = {"PATH": os.environ["PATH"], "SPARK_HOME": str(JARS.parent), "SPARK_SCALA_VERSION": "2.13"}
    command = [java(), "-cp", f"{JARS}/*", *launcher]
    said = subprocess.run(command, env=environment, capture_output=True, check=True).stdout.decode()
    options = said[said.index("-Xmx") :].split("\0")
    options = options[1 : options.index("org.apache.spark.deploy.SparkSubmit")]
    assert set(options) - set(MODULE_OPTIONS) == {
        "--add-modules=jdk.incubator.vector",
        "-Dderby.connection.requireAuthentication=false",
    }
    assert set(MODULE_OPTIONS) <= set(options)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of an empty cache folder for one test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "rowkind"


def part_of(options: list[str]) -> Path:
    """Return the path at which the JVM must leave an archive. The JVM counts as one that has run a batch."""
    keep(options)
    (at,) = (option for option in options if option.startswith("-XX:ArchiveClassesAtExit="))
    return Path(at.partition("=")[2])


def test_an_archive_is_made_once_and_then_used(cache: Path) -> None:
    """An archive that one JVM has written is used by the next one, but not before it is complete."""
    left = part_of(class_archive(java(), JARS, ["-Xmx1g"]))
    left.write_bytes(bytes(16))
    assert part_of(class_archive(java(), JARS, ["-Xmx1g"])) != left, "it is still being written"
    left.write_bytes(b"head")
    used = class_archive(java(), JARS, ["-Xmx1g"])[-1].partition("=")
    assert used[0] == "-XX:SharedArchiveFile"
    assert Path(used[2]).parent == cache
    assert Path(used[2]).read_bytes() == b"head"
    assert class_archive(java(), JARS, ["-Xmx2g"])[-1] == "".join(used), "how much memory a job has is no matter"
    assert part_of(class_archive(java(), JARS, ["-XX:+UseSerialGC"])), "it belongs to other options"


def test_jars_behind_sparks_do_with_the_archive_that_is_there(cache: Path) -> None:
    """Java accepts an archive whose class path is the beginning of its own, and writes one if there is none."""
    spark, more = (str(next(JARS.glob(name))) for name in ("spark-launcher_*.jar", "scala-library-*.jar"))
    longer = f"{spark}{os.pathsep}{more}"
    assert part_of(class_archive(java(), JARS, [longer], [spark]))
    program = ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
    environment = {"PATH": os.environ["PATH"], "SPARK_HOME": str(JARS.parent), "SPARK_SCALA_VERSION": "2.13"}
    leaves = class_archive(java(), JARS, [spark])
    keep(leaves)
    subprocess.run([java(), "-cp", spark, *leaves, *program], env=environment, capture_output=True, check=True)
    takes = class_archive(java(), JARS, [longer], [spark])
    assert Path(takes[-1].partition("=")[2]).parent == cache
    command = [java(), "-cp", longer, *takes, "-Xlog:class+load", *program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "org.apache.spark.launcher.Main source: shared objects file (top)" in done.stdout


@pytest.mark.usefixtures("cache")
def test_an_archive_of_a_jvm_that_ran_no_batch_goes() -> None:
    """A job that is refused at its first start must not leave an archive with few classes for all later starts."""
    options = class_archive(java(), JARS, [])
    left = part_of(options)
    left.write_bytes(b"head")
    left.with_suffix(".ran").unlink()
    assert part_of(class_archive(java(), JARS, [])) != left
    assert not left.exists()
    keep(options)
    left.write_bytes(b"head")
    assert class_archive(java(), JARS, [])[-1].startswith("-XX:SharedArchiveFile=")
    assert not left.with_suffix(".ran").exists()


def test_an_archive_that_was_never_finished_goes(cache: Path) -> None:
    """A JVM that is killed while it writes would otherwise leave 150 MB."""
    left = part_of(class_archive(java(), JARS, []))
    left.write_bytes(bytes(16))
    os.utime(left, (0, 0))
    os.utime(left.with_suffix(".ran"), (0, 0))
    class_archive(java(), JARS, [])
    assert not list(cache.iterdir())


def test_an_archive_that_nobody_uses_goes(cache: Path) -> None:
    """An archive that is no longer used is deleted after a month; one that is used stays, however old it is."""
    part_of(class_archive(java(), JARS, [])).write_bytes(b"head")
    used = Path(class_archive(java(), JARS, [])[-1].partition("=")[2])
    other = cache / "classes-0.jsa"
    other.write_bytes(b"head")
    long_ago = time.time() - 31 * 86_400
    os.utime(other, (long_ago, long_ago))
    os.utime(used, (time.time() - 86_400, time.time() - 86_400))
    class_archive(java(), JARS, [])
    assert list(cache.iterdir()) == [used]
    assert time.time() - used.stat().st_mtime < 3_600


def test_an_archive_that_is_packed_beside_the_libraries_is_used(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image starts with an empty cache: the packed archive is unpacked once, without leaving other files."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "installed"))
    part_of(class_archive(java(), JARS, [])).write_bytes(b"head" * 100_000)
    used = class_archive(java(), JARS, [])
    pack()
    (archive,) = cache.iterdir()
    archive.unlink()
    assert class_archive(java(), JARS, []) == used
    assert archive.read_bytes() == b"head" * 100_000
    assert list(cache.iterdir()) == [archive]


@pytest.mark.usefixtures("cache")
def test_a_job_that_runs_once_uses_an_archive_and_writes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the demo's job, which would take longer to start and to end."""
    left = part_of(class_archive(java(), JARS, []))
    monkeypatch.setenv(NO_NEW_ARCHIVE, "yes")
    assert class_archive(java(), JARS, []) == []
    left.write_bytes(b"head")
    assert class_archive(java(), JARS, [])[-1].startswith("-XX:SharedArchiveFile=")


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container with a read-only file system, Java starts without an archive."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert class_archive(java(), JARS, []) == []


def test_an_archive_that_java_does_not_like_costs_only_time(cache: Path) -> None:
    """If the archive is damaged, Java starts without it and prints nothing."""
    part_of(class_archive(java(), JARS, [])).write_bytes(b"no archive at all")
    command = [java(), *class_archive(java(), JARS, []), "--version"]
    plain = subprocess.run([java(), "--version"], capture_output=True, check=True)
    done = subprocess.run(command, capture_output=True, check=True)
    assert (done.stdout.replace(b", sharing", b""), done.stderr) == (plain.stdout.replace(b", sharing", b""), b"")
    assert any(cache.iterdir())


def test_what_killed_runs_have_left_goes(tmp_path: Path) -> None:
    """The unlocked folders of killed runs are deleted; folders of live runs and other folders stay."""
    left, alive = temporary_folder(str(tmp_path))
    alive.close()
    lives, held = temporary_folder(str(tmp_path))
    other = tmp_path / "rowkind-other"
    other.mkdir()
    assert not Path(left).exists()

    third, last = temporary_folder(str(tmp_path))

    assert sorted(tmp_path.iterdir()) == sorted(map(Path, (lives, third, other)))
    held.close()
    last.close()
