"""Downloads from Maven Central the jars that pyspark lacks, once per user, with the Ivy that ships with pyspark.

The cache is a folder per product and version in `$XDG_CACHE_HOME/rowkind` (`~/.cache/rowkind`). A folder gets its name
only when it is complete, and a file lock makes a second process wait for the first one's download. An image contains
the jars in the folder `share/rowkind` of its installation.
"""

from __future__ import annotations

import fcntl
import importlib.util
import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rowkind.cache import cache, installed
from rowkind.errors import RowkindError

Module = tuple[str, str, str]
"""A module in Maven Central: organisation, name, revision."""

NO_FILES = "-XX:-UsePerfData"
"""The option that keeps Java from writing performance data to a folder `hsperfdata_…`."""

_DOWNLOAD_SECONDS = 900
_TELL_SECONDS = 3

log = logging.getLogger("rowkind")


class MissingJavaError(RowkindError):
    """There is no `java` on this machine: install Java 17 or newer, or set JAVA_HOME."""


class DownloadError(RowkindError):
    """The jars could not be downloaded: check the connection to Maven Central, or copy the jars to the named folder."""


def java() -> str:
    """Return the path of the Java to use, from JAVA_HOME or else from PATH. Raises MissingJavaError."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if found is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the path"
        raise MissingJavaError(
            f"Rowkind needs Java, but {where}: install a JRE 17 or newer, or set JAVA_HOME to its folder."
        )
    return found


def fetched(
    product: str,
    modules: Sequence[Module],
    alone: Sequence[Module] = (),
    without: Sequence[str] = (),
    megabytes: int | None = None,
) -> Path:
    """Return a folder with the jars of these modules and their dependencies, downloaded on the first call.

    `product`: the product's name and version, after which the folder is named. Modules in `alone` are downloaded
    without their dependencies. Nothing is downloaded from the organisations in `without`. `megabytes`: the approximate
    total size, from which the remaining time is estimated in the log. Raises DownloadError or MissingJavaError.
    """
    name = product.lower().replace(" ", "-")
    ready, folder = installed() / name, cache() / name
    for there in (ready, folder):
        if there.is_dir():
            return there
    with _lock(folder.with_suffix(".lock")):
        if not folder.is_dir():
            _fetch(folder, product, _wanted(modules, alone, without), [*modules, *alone], megabytes)
    return folder


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except PermissionError as error:
        raise DownloadError(
            f"No permission to write {error.filename}: set XDG_CACHE_HOME to your own folder."
        ) from None


def _fetch(folder: Path, product: str, text: str, modules: Sequence[Module], megabytes: int | None) -> None:
    log.info("downloading %s to %s (only once)", product, folder)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as staging:
        jars, wanted = Path(staging, "jars"), Path(staging, "ivy.xml")
        wanted.write_text(text)
        command = [java(), NO_FILES, "-jar", str(_ivy()), "-m2compatible", "-ivy", str(wanted), "-confs", "default"]
        command += ["-cache", str(Path(staging, "ivy"))]
        command += ["-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
        code, output, error = _ran(command, _Download(product, Path(staging, "ivy"), megabytes).tell)
        if code is None:
            raise DownloadError(_advice(folder, product, f"timed out after {_DOWNLOAD_SECONDS} s"))
        if code or not all(any(jars.glob(f"{name}-*.jar")) for _, name, _ in modules):
            reasons = [line.strip() for line in output.splitlines() if "WARN" in line or "ERROR" in line]
            raise DownloadError(_advice(folder, product, "\n".join(reasons[:12]) or error[-1000:]))
        jars.rename(folder)


def _ran(command: Sequence[str], tell: Callable[[], None]) -> tuple[int | None, str, str]:
    """Run a command, and call `tell` every few seconds. Return exit code (None after a timeout), output and errors."""
    with subprocess.Popen(  # noqa: S603 - our own command line
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            for _ in range(_DOWNLOAD_SECONDS // _TELL_SECONDS):
                try:
                    output, error = process.communicate(timeout=_TELL_SECONDS)
                except subprocess.TimeoutExpired:
                    tell()
                else:
                    return process.returncode, output, error
        finally:
            process.kill()
        return None, "", ""


@dataclass
class _Download:
    """Logs a download's progress. The remaining time is estimated from the rate since the first bytes arrived."""

    product: str
    folder: Path
    megabytes: int | None
    _began: float = field(default_factory=time.monotonic)
    _since: float = field(default_factory=time.monotonic)

    def tell(self) -> None:
        there, now = 0.0, time.monotonic()
        for each in self.folder.rglob("*.jar*"):
            # A completed file is renamed.
            with suppress(FileNotFoundError):
                there += each.stat().st_size / 1e6
        if not there:
            self._since = now
            log.info("downloading %s: resolving its dependencies, %.0f s so far", self.product, now - self._began)
        elif self.megabytes is None:
            log.info("downloading %s: %.0f MB", self.product, there)
        else:
            left = (now - self._since) * max(0.0, self.megabytes - there) / there
            log.info("downloading %s: %.0f of %d MB, %.0f s left", self.product, there, self.megabytes, left)


def _wanted(modules: Sequence[Module], alone: Sequence[Module], without: Sequence[str]) -> str:
    """Return the modules in the format of an Ivy file."""
    dependencies = [
        f'<dependency org="{organisation}" name="{name}" rev="{revision}" conf="default->{needed}"/>'
        for some, needed in ((modules, "default"), (alone, "master"))
        for organisation, name, revision in some
    ]
    excluded = [f'<exclude org="{organisation}"/>' for organisation in without]
    return (
        '<ivy-module version="2.0"><info organisation="rowkind" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(dependencies + excluded)}</dependencies></ivy-module>"
    )


def _advice(folder: Path, product: str, reason: str) -> str:
    return (
        f"{product} could not be downloaded from Maven Central:\n{reason}\n"
        f"Check the network and its proxy (JAVA_TOOL_OPTIONS passes settings to Java), or copy the jars of a {product} "
        f"distribution (its lib or libs folder) to {folder}."
    )


def _ivy() -> Path:
    found = spark_jars("ivy-*.jar")
    if not found:
        raise DownloadError(
            "the installation of pyspark is incomplete: it lacks Ivy, which downloads jars. Reinstall pyspark."
        )
    return found[-1]


def spark_jars(pattern: str) -> list[Path]:
    """Return the jars in pyspark's installation whose names match this pattern."""
    spark = importlib.util.find_spec("pyspark")
    return sorted(Path(spark.origin).parent.glob(f"jars/{pattern}")) if spark and spark.origin else []
