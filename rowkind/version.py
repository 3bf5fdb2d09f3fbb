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
    """The version of the Java on the path, as it says itself."""
    import shutil
    import subprocess

    java = shutil.which("java")
    if java is None:
        return "not found"
    command = [java, "-version"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr  # noqa: S603 - a fixed command
    quoted = said.partition('"')[2].partition('"')[0]
    return quoted or "unknown"
