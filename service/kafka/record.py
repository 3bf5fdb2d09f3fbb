"""Records as the client hands them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from operators.changes import Int64s

Headers = list[tuple[str, bytes | None]] | None


class Message(Protocol):
    """What is used of confluent_kafka's Message, which names its types less sharply."""

    def topic(self) -> str:
        """The topic's name."""

    def partition(self) -> int:
        """The partition's number."""

    def offset(self) -> int:
        """The offset in the partition."""

    def key(self) -> bytes | None:
        """The key."""

    def value(self) -> bytes | None:
        """The value; None deletes in a compacted topic."""

    def headers(self) -> Headers:
        """The headers in their order; a name may occur more than once."""

    def timestamp(self) -> tuple[int, int]:
        """The kind of the timestamp, 0 for none, and the time in ms since the epoch."""

    def __len__(self) -> int:
        """Bytes of the value."""


@dataclass(frozen=True)
class Records:
    """Records of one topic, with their partitions."""

    topic: str
    messages: Sequence[Message]
    partition: Int64s

    def __len__(self) -> int:
        return len(self.messages)
