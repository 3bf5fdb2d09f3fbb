"""The second client of the end-to-end tests: kcat, which knows bytes and headers, and nothing of Rowkind."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

_BETWEEN = "<<next message>>"
_AFTER_KEY = "<<end of key>>"


@dataclass(frozen=True)
class Message:
    """A Kafka message as kcat shows it; `None` is Kafka's null."""

    partition: int
    offset: int
    headers: dict[str, str]
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Kcat:
    """The kcat program at `path`, connected to `broker`."""

    path: str
    broker: str

    def produce(self, topic: str, messages: Sequence[tuple[bytes, bytes]], headers: dict[str, str]) -> None:
        """Send (key, value) pairs with the same headers and wait for the broker; b"" becomes null."""
        data = _BETWEEN.encode().join(key + _AFTER_KEY.encode() + value for key, value in messages)
        told = [argument for name, value in headers.items() for argument in ("-H", f"{name}={value}")]
        self._run("-P", "-t", topic, "-D", _BETWEEN, "-K", _AFTER_KEY, "-Z", *told, data=data)

    def consume(self, topic: str) -> list[Message]:
        """Return all records committed in the topic, in the order of each partition."""
        fields = "%p\t%o\t%K\t%S\t%h\n%k%s"
        data = self._run(
            "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-X", "isolation.level=read_committed", "-f", fields
        )
        messages = []
        while data:
            line, _, data = data.partition(b"\n")
            partition, offset, key_size, value_size, headers = line.decode().split("\t")
            key, data = _cut(data, int(key_size))
            value, data = _cut(data, int(value_size))
            messages.append(Message(int(partition), int(offset), _headers(headers), key, value))
        return messages

    def _run(self, *arguments: str, data: bytes = b"") -> bytes:
        done = subprocess.run(
            [self.path, "-b", self.broker, *arguments], input=data, capture_output=True, check=False, timeout=60
        )
        assert done.returncode == 0, f"kcat {' '.join(arguments)} ended with {done.returncode}: {done.stderr.decode()}"
        return done.stdout


def _cut(data: bytes, size: int) -> tuple[bytes | None, bytes]:
    return (data[:size], data[size:]) if size >= 0 else (None, data)


def _headers(text: str) -> dict[str, str]:
    # kcat separates headers by commas and quotes nothing; a comma within a value is not followed by a name and "=".
    return dict(part.split("=", 1) for part in re.split(r",(?=[\w.-]+=)", text) if part)
