"""The classes of a local session's JVM: its class path, and the archive of the classes that an earlier JVM loaded.

Java spends half of its start on reading, verifying and linking 20,000 classes. A **class archive** (class data sharing,
JEP 350) contains these classes ready to be mapped. An archive is valid for one version of Java, one set of start
options, and a class path that begins with the same jars. A JVM that finds no archive writes one when it exits normally,
under a unique name, since other JVMs may do the same. The next process that starts renames the archive to its final
name. A JVM that is killed while writing leaves a file without a header, which is removed. The archive of a JVM that has
run no batch is removed, too: if the first job on a machine is refused, few classes have been loaded. An image contains
the archive with the libraries, compressed to a quarter of its size.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from rowkind.cache import NO_NEW_ARCHIVE, cache, installed

_UNUSED_JARS = (
    *("spark-mllib", "breeze", "spire"),
    *("spark-kubernetes", "kubernetes-", "vertx-", "volcano-"),
    *("datanucleus-", "derby"),
)
"""The beginnings of the names of jars that a local session does not need.

They belong to machine learning, Kubernetes and Hive's catalog. With the first ones, each session would initialise
Spark's machine-learning functions, and thereby Scala's reflection: 0.5 s of CPU. Java opens all jars in which it looks
for a class, and reads the list of their files.
"""

_WRITES = "-XX:ArchiveClassesAtExit="
_RAN = ".ran"

_OF_A_JOB = ("-D", "-Xmx", "-XX:MaxDirectMemorySize")

_GIVEN_UP_SECONDS = 600
"""Age in seconds at which an incomplete archive counts as abandoned. Writing an archive takes about 10 s."""

_CHUNK = 1 << 20
_TIGHTLY = 9
"""Compression level. Compared to the lowest level, the result is a sixth smaller and is read as quickly."""

_UNUSED_SECONDS = 30 * 86_400
"""Seconds without use after which an archive is removed, because its Java or jars no longer exist."""


def class_path(jars: Path) -> list[str]:
    """Return the jars in Spark's folder `jars` that a local session needs, in alphabetical order."""
    return [str(jar) for jar in sorted(jars.glob("*.jar")) if not jar.name.startswith(_UNUSED_JARS)]


def argument_file(folder: str, *arguments: str) -> Path:
    """Write arguments of Java to a file, because the class path has 18,000 characters, and return the file's path."""
    path = Path(folder, "arguments")
    quoted = (argument.replace("\\", "\\\\").replace('"', '\\"') for argument in arguments)
    path.write_text("\n".join(f'"{each}"' for each in quoted))
    return path


def class_archive(program: str, jars: Path, options: Sequence[str], *or_else: Sequence[str]) -> list[str]:
    """Return the options that make a JVM read or write the class archive; none if there is no cache folder.

    An archive for the options `or_else` is also suitable if this JVM's class path begins with the archive's class path.
    """
    archives = [cache() / f"classes-{_identity(program, jars, each)}.jsa" for each in (options, *or_else)]
    # Users need not know that Java rejected an archive.
    quiet = ["-Xshare:auto", "-Xlog:cds*=off"]
    # The folder may be read-only, or another process that starts at the same time may have been faster.
    with suppress(OSError):
        cache().mkdir(parents=True, exist_ok=True)
        put_in_place()
    for archive in archives:
        with suppress(OSError):
            _unpack(archive)
        if archive.exists():
            with suppress(OSError):
                os.utime(archive)
            return [*quiet, f"-XX:SharedArchiveFile={archive}"]
    if os.access(cache(), os.W_OK) and NO_NEW_ARCHIVE not in os.environ:
        return [*quiet, f"{_WRITES}{archives[0].with_suffix('')}.{uuid4().hex}.part"]
    return []


def pack() -> None:
    """Compress the cache's archives to a folder in which `class_archive` of the same installation finds them."""
    import pyarrow as pa  # noqa: PLC0415 -- slow to load, and only for an image

    for archive in cache().glob("classes-*.jsa"):
        packed = _packed(archive)
        packed.parent.mkdir(parents=True, exist_ok=True)
        codec = pa.Codec("zstd", _TIGHTLY)
        packed.write_bytes(codec.compress(archive.read_bytes(), asbytes=True))


def _unpack(archive: Path) -> None:
    if archive.exists() or not _packed(archive).exists():
        return
    import pyarrow as pa  # noqa: PLC0415 -- as above

    # Another process may do the same at the same time.
    draft = archive.with_name(f"{archive.name}.{uuid4().hex}")
    try:
        with pa.input_stream(str(_packed(archive)), compression="zstd") as source, draft.open("wb") as file:
            shutil.copyfileobj(source, file, _CHUNK)
        draft.replace(archive)
    finally:
        draft.unlink(missing_ok=True)


def _packed(archive: Path) -> Path:
    return installed() / f"{archive.name}.zst"


def _identity(program: str, jars: Path, options: Sequence[str]) -> str:
    """Return a short name for an archive's Java, jars and start options, without job-specific options."""
    real = Path(program).resolve()
    folder = jars.stat()
    same = (option for option in options if not option.startswith(_OF_A_JOB))
    what = (real, real.stat().st_mtime_ns, jars, folder.st_mtime_ns, *same)
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def put_in_place() -> None:
    """Give archives that JVMs have written their final names, and remove unused archives. Raises OSError."""
    for old in (*cache().glob("classes-*.jsa"), *cache().glob(f"classes-*{_RAN}")):
        if time.time() - old.stat().st_mtime > _UNUSED_SECONDS:
            old.unlink()
    for part in cache().glob("classes-*.part"):
        with part.open("rb") as file:
            # Java writes the header last.
            whole = any(file.read(8))
        if whole and _mark(part).exists():
            part.replace(part.with_name(f"{part.name.partition('.')[0]}.jsa"))
            _mark(part).unlink()
        elif whole or time.time() - part.stat().st_mtime > _GIVEN_UP_SECONDS:
            part.unlink()


def keep(options: Sequence[str]) -> None:
    """Let the archive that a JVM with these options leaves be used. Call this once the JVM has run a batch."""
    for option in options:
        if option.startswith(_WRITES):
            with suppress(OSError):
                _mark(Path(option.removeprefix(_WRITES))).touch()


def _mark(part: Path) -> Path:
    """Return the path of the empty file that exists once the JVM that is going to write the archive has run a batch."""
    return part.with_suffix(_RAN)
