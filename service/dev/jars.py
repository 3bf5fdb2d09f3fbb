"""The embedded broker's jars, and the error for a broker that does not start."""

from __future__ import annotations

import os
from pathlib import Path

from rowkind.errors import RowkindError
from rowkind.service.machine.jars import Module, fetched, spark_jars

KAFKA = "4.1.0"

_MODULE: Module = ("org.apache.kafka", "kafka_2.13", KAFKA)


class BrokerStartError(RowkindError):
    """The broker did not start, exited or did not respond. The message quotes the broker's log if there is one."""


def kafka_jars() -> Path:
    """Return the folder with the jars of a Kafka broker. The first call downloads them."""
    return fetched(f"Kafka {KAFKA}", [_MODULE], megabytes=44)


def class_path() -> str:
    """Return the broker's class path: pyspark's logging jars, which Kafka's jars lack, followed by Kafka's jars."""
    return os.pathsep.join([*logging_jars(), f"{kafka_jars()}/*"])


def logging_jars() -> list[str]:
    """Return pyspark's jars for logging, without which a Java program cannot log."""
    return [str(path) for name in ("slf4j-api", "log4j-*") for path in spark_jars(f"{name}-*.jar")]
