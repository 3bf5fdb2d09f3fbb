"""Which Rowkind this is, and what it runs on: what a report of a bug needs."""

from __future__ import annotations

# What is asked for when something is wrong, or once: no command and no worker is to load it first.
# ruff: noqa: PLC0415


def version() -> str:
    """Rowkind's own version, as it was installed."""
    from importlib import metadata

    return metadata.version("rowkind")


def environment() -> str:
    """One line: the versions of Rowkind, Python, Spark, Java and librdkafka."""
    import platform
    from importlib import metadata

    from confluent_kafka import libversion

    parts = {
        "Python": platform.python_version(),
        "Spark": metadata.version("pyspark"),
        "Java": _java(),
        "librdkafka": libversion()[0],
    }
    return f"rowkind {version()} ({', '.join(f'{name} {found}' for name, found in parts.items())})"


def _java() -> str:
    """The version of JAVA_HOME's Java, or the path's, as it says itself."""
    import os
    import shutil
    import subprocess

    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return "not found"
    command = [java, "-version"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr  # noqa: S603 - a fixed command
    quoted = said.partition('"')[2].partition('"')[0]
    return quoted or "unknown"
