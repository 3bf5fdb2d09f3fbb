"""Where the changes of a sink go."""

from __future__ import annotations

from typing import Literal

SinkTarget = Literal["topic", "print", "blackhole"]
"""`topic`: to a Kafka topic. `print`: to the log of the job. `blackhole`: nowhere, so that a query can be measured."""


def destination(to: SinkTarget, topic: str) -> str:
    """Say where the changes of a sink go. `topic` is the name of its topic, if it has one."""
    words = {"topic": f"topic {topic}", "print": "printed to the log", "blackhole": "discarded"}
    return words[to]
