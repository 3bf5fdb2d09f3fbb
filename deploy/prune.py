"""Remove from installed libraries what a job never loads: `python prune.py SITE_PACKAGES NATIVE`.

Spark includes machine learning, graphs, Hive, YARN, a shell and a server; pyarrow includes clients of other services.
Native libraries for other machines are removed from jars. RocksDB's library is moved to the folder NATIVE. If the JVM
finds it on its library path, it does not unpack it into /tmp. Unpacking fails if /tmp is mounted noexec, as `--tmpfs`
does.
"""

from __future__ import annotations

import platform
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

NEVER_LOADED = (
    *("pyspark/jars/connect-repl", "pyspark/examples", "pyspark/data", "pyspark/ml", "pyspark/mllib", "pyspark/pandas"),
    *(f"pyspark/jars/spark-{part}*.jar" for part in ("connect", "graphx", "hive", "mllib", "pipelines", "repl")),
    "pyspark/jars/spark-yarn_*.jar",
    # Linear algebra, for machine learning.
    *(f"pyspark/jars/{name}*.jar" for name in ("arpack", "blas", "breeze", "JLargeArrays", "JTransforms", "lapack")),
    *(f"pyspark/jars/{name}*.jar" for name in ("algebra_", "cats-kernel", "spire")),
    # Hive and its metastore. Spark reads ORC with the storage API, which stays.
    *(f"pyspark/jars/hive-{part}-*.jar" for part in ("beeline", "cli", "exec", "jdbc", "metastore", "serde")),
    *("pyspark/jars/hive-service-rpc-*.jar", "pyspark/jars/hive-shims*.jar"),
    *(f"pyspark/jars/{name}-*.jar" for name in ("datanucleus", "javax.jdo", "jdo-api", "libfb303", "libthrift")),
    *("pyspark/jars/derby*.jar", "pyspark/jars/HikariCP-*.jar", "pyspark/jars/commons-dbcp-*.jar"),
    # The shell.
    *("pyspark/jars/scala-compiler-*.jar", "pyspark/jars/jline-*.jar"),
    *("pyspark/jars/netty-tcnative-*-osx-*.jar", "pyspark/jars/netty-tcnative-*-windows-*.jar"),
    *("pyarrow/libarrow_flight.so*", "pyarrow/_flight.*", "pyarrow/libarrow_s3.so*", "pyarrow/_s3fs.*"),
    # Further copies of a library that is loaded as libarrow_python.so.2600, and a library that only the clients above
    # use.
    *("pyarrow/libarrow_python.so", "pyarrow/libarrow_python.so.*.*.*", "pyarrow/libarrow_python_flight.so*"),
    # Syntax highlighting, which the terminal output does not use.
    "pygments/lexers",
    # Messages of Google services, which come with those of OpenTelemetry.
    *("google/api", "google/longrunning", "google/type"),
    # Fortran.
    "numpy/f2py",
    *("pyarrow/tests", "pyarrow/include", "pyarrow/src", "pandas/tests", "numpy/*/tests"),
    # Files for compilers and type checkers.
    *(
        "numpy/_core/include",
        "numpy/**/*.pyi",
        "pyspark/**/*.pyi",
        "pyarrow/includes",
        "pyarrow/*.pxi",
        "pyarrow/*.pyx",
    ),
)
"""Patterns of files and folders. Each of them matches at least one."""

_OF_ROCKSDB = "librocksdbjni-"
_ROCKSDBS = {"x86_64": "linux64", "aarch64": "linux-aarch64"}

MANY_MACHINES = ("zstd-jni", "snappy-java", "lz4-java")
NATIVE = (".so", ".dll", ".dylib", ".jnilib", ".a")
_FOLDERS = {"x86_64": ("linux/amd64", "native/Linux/x86_64"), "aarch64": ("linux/aarch64", "native/Linux/aarch64")}
"""The folders in jars with native libraries for a machine."""


def prune(packages: Path, native: Path) -> None:
    """Remove the files from the folder of packages, and put RocksDB's library into `native`."""
    for pattern in NEVER_LOADED:
        for found in packages.glob(pattern):
            if found.is_dir():
                shutil.rmtree(found)
            else:
                found.unlink()
    machine = platform.machine()
    (rocksdb,) = packages.glob("pyspark/jars/rocksdbjni-*.jar")
    with zipfile.ZipFile(rocksdb) as jar:
        jar.extract(f"{_OF_ROCKSDB}{_ROCKSDBS[machine]}.so", native)
    _reduce(rocksdb, lambda entry: not entry.startswith(_OF_ROCKSDB))
    for name in MANY_MACHINES:
        (found,) = packages.glob(f"pyspark/jars/{name}-*.jar")
        _reduce(found, lambda entry: not entry.endswith(NATIVE) or str(Path(entry).parent).endswith(_FOLDERS[machine]))


def _reduce(jar: Path, stays: Callable[[str], bool]) -> None:
    whole = jar.with_suffix(".whole")
    jar.rename(whole)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as kept:
        for entry in source.infolist():
            if stays(entry.filename):
                kept.writestr(entry, source.read(entry))
    whole.unlink()


if __name__ == "__main__":
    prune(*(Path(argument) for argument in sys.argv[1:]))
