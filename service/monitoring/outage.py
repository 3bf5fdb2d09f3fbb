"""Detect Kafka outages, and log once when Kafka stops answering and once when it answers again.

Every client gives up within seconds. Its query then fails, and is started again when Kafka answers
(`service.run.supervisor`). This module detects when Kafka answers, and no other module of the job logs an outage.
"""

from __future__ import annotations

import logging
import time

from confluent_kafka import KafkaException

from rowkind.service.kafka.clients import KafkaSettings, reach, servers
from rowkind.service.kafka.errors import UnreachableError
from rowkind.service.monitoring.waiting import Waiting

_EVERY_SECONDS = 5.0
_EVERY_SECONDS_AWAY = 1.0
_ANSWER_SECONDS = 2.0

log = logging.getLogger("rowkind")


class Outage:
    """Checks every few seconds that the brokers answer. During an outage, each check uses a new client."""

    def __init__(self, kafka: KafkaSettings, waiting: Waiting) -> None:
        """Connect to the brokers. Raises ChangelogError if they do not answer."""
        self._kafka, self._waiting = kafka, waiting
        self._client = reach(kafka)
        self._next = time.monotonic() + _EVERY_SECONDS
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """For how many seconds Kafka has not answered, or 0 if it answers."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def look(self, *, now: bool = False) -> bool:
        """Check Kafka if a check is due or `now` is set, and log changes. Return whether an outage has just begun.

        This may take up to 2 s.
        """
        if not now and time.monotonic() < self._next:
            return False
        answered = self._since is None
        try:
            client = self._client if self._since is None else reach(self._kafka, _ANSWER_SECONDS)
            client.list_topics("__rowkind_is_anybody_there", timeout=_ANSWER_SECONDS)
        except (KafkaException, UnreachableError):
            if self._since is None:
                self._since = time.monotonic()
                log.warning("Kafka at %s does not answer; waiting for it", servers(self._kafka))
                self._waiting.begin("kafka", f"Kafka at {servers(self._kafka)}", told=True)
        else:
            self._client = client
            if self._since is not None:
                log.info("Kafka answers again, after %.0f s", self.seconds)
                self._since = None
                self._waiting.end("kafka", quietly=True)
        self._next = time.monotonic() + (_EVERY_SECONDS if self._since is None else _EVERY_SECONDS_AWAY)
        return answered and self._since is not None
