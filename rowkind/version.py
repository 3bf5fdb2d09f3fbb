"""Which Rowkind this is, and what it runs on: what a report of a bug needs."""

from __future__ import annotations

import platform
import shutil
import subprocess
from importlib import metadata


def version() -> str:
    """Rowkind's own version, as it was installed."""
    return metadata.version("rowkind")


def environment() -> str:
    """One line: the versions of Rowkind, Python, Spark, Java and librdkafka."""
    # It takes its time to load, which only this line needs.
    from confluent_kafka import libversion  # noqa: PLC0415 - see above

    parts = {
        "Python": platform.python_version(),
        "Spark": metadata.version("pyspark"),
        "Java": _java(),
        "librdkafka": libversion()[0],
    }
    return f"rowkind {version()} ({', '.join(f'{name} {found}' for name, found in parts.items())})"


def _java() -> str:
    """The version of the Java on the path, as it says itself."""
    java = shutil.which("java")
    if java is None:
        return "not found"
    command = [java, "-version"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr  # noqa: S603 - a fixed command
    quoted = said.partition('"')[2].partition('"')[0]
    return quoted or "unknown"
