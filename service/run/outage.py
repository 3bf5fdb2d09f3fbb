"""Whether Kafka answers, told once when it stops and once when it does again.

Sources, read and write tasks wait for brokers that went away, each in its own process and for its own time. This is
the one voice of the job that says so meanwhile.
"""

from __future__ import annotations

import logging
import time

from confluent_kafka import KafkaException

from rowkind.service.kafka.clients import KafkaSettings, reach, servers

_EVERY_SECONDS = 5.0
_ANSWER_SECONDS = 2.0

log = logging.getLogger("rowkind")


class Outage:
    """Asks the brokers every few seconds."""

    def __init__(self, kafka: KafkaSettings) -> None:
        """Raises a ChangelogError if they do not answer now."""
        self._servers = servers(kafka)
        self._client = reach(kafka)
        self._next = time.monotonic() + _EVERY_SECONDS
        self._since: float | None = None

    def look(self) -> None:
        """Ask, if it is time to, and tell what has changed. May take two seconds."""
        if time.monotonic() < self._next:
            return
        try:
            self._client.list_topics("__rowkind_is_anybody_there", timeout=_ANSWER_SECONDS)
        except KafkaException:
            if self._since is None:
                self._since = time.monotonic()
                log.warning("Kafka at %s does not answer; waiting for it", self._servers)
        else:
            if self._since is not None:
                log.info("Kafka answers again, after %.0f s", time.monotonic() - self._since)
                self._since = None
        self._next = time.monotonic() + _EVERY_SECONDS
