"""What the embedded broker is made of, and what can be wrong with it."""

from __future__ import annotations

import os
from pathlib import Path

from rowkind.errors import RowkindError
from rowkind.service.machine.jars import Module, fetched, spark_jars

KAFKA = "4.1.0"

_MODULE: Module = ("org.apache.kafka", "kafka_2.13", KAFKA)


class BrokerStartError(RowkindError):
    """The broker ended or did not answer; its log is quoted."""


def kafka_jars() -> Path:
    """A folder with the jars of a Kafka broker, fetched on the first call."""
    return fetched(f"Kafka {KAFKA}", [_MODULE], megabytes=44)


def class_path() -> str:
    """The broker's class path: its own jars, and before them the logging that pyspark ships, which they lack."""
    return os.pathsep.join([*logging_jars(), f"{kafka_jars()}/*"])


def logging_jars() -> list[str]:
    """The jars that let a Java program log."""
    return [str(path) for name in ("slf4j-api", "log4j-*") for path in spark_jars(f"{name}-*.jar")]
