"""The versions of Rowkind and its environment, for bug reports."""

from __future__ import annotations

# These functions are called rarely, so their imports do not slow down the start of commands and workers.
# ruff: noqa: PLC0415


def version() -> str:
    """Return the installed version of Rowkind."""
    from importlib import metadata

    return metadata.version("rowkind")


def environment() -> str:
    """Return the versions of Rowkind, Python, Spark, Java and librdkafka in one line."""
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
    """Return the version of Java, from JAVA_HOME or else from the PATH, as `java -version` reports it."""
    import subprocess

    from rowkind.service.machine.jars import NO_FILES, MissingJavaError, java

    try:
        command = [java(), NO_FILES, "-version"]
    except MissingJavaError:
        return "not found"
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr  # noqa: S603 - a fixed command
    quoted = said.partition('"')[2].partition('"')[0]
    return quoted or "unknown"
