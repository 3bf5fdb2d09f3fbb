"""Measure the lag of a job's queries every 2 s, in a separate thread because brokers may answer slowly."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Self

from rowkind.service.kafka.errors import ChangelogError, UnreachableError
from rowkind.service.kafka.lag import LagMeter
from rowkind.service.kafka.spec import SourceSpec
from rowkind.service.monitoring.monitor import Monitor

_EVERY_SECONDS = 2.0
_LAST_SECONDS = 5.0
"""How long to wait at the end for a pending answer."""

log = logging.getLogger("rowkind")


class LagWatch:
    """Reports each query's lag to `monitor` while the context is active."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._meters: dict[str, LagMeter] = {}
        self._refused: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_LAST_SECONDS)

    def add(self, query: str, spec: SourceSpec, group: str) -> None:
        """Measure this query's lag too, starting with the next round. Commit its offsets to the consumer group."""
        if query not in self._meters:
            self._meters[query] = LagMeter(spec, group)

    def _run(self) -> None:
        while not self._ended.is_set():
            for query, meter in list(self._meters.items()):
                at = self._monitor.position(query)
                self._monitor.lags(query, meter.look(at))
                if at is not None and query not in self._refused:
                    self._tell(query, meter, at)
            self._ended.wait(_EVERY_SECONDS)
        for meter in self._meters.values():
            meter.close()

    def _tell(self, query: str, meter: LagMeter, at: Mapping[tuple[str, int], int]) -> None:
        try:
            meter.tell(at)
        except UnreachableError:
            # `Outage` reports an outage. The offsets are committed when it is over.
            pass
        except ChangelogError as error:
            self._refused.add(query)
            log.warning("query %s: the consumer group does not show its progress: %s", query, error)
