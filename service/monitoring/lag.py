"""Looks every few seconds how far the queries of a job are behind, in a thread: brokers may take their time."""

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
"""For which is waited, in the end, for an answer that is under way."""

log = logging.getLogger("rowkind")


class LagWatch:
    """Tells `monitor` the lag of each query; used with `with`."""

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
        """Look at this query too, from the next time on; the consumer group is told how far it is."""
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
            # Of an outage others tell, and the offsets are told once it is over.
            pass
        except ChangelogError as error:
            self._refused.add(query)
            log.warning("query %s: the consumer group does not show how far it is: %s", query, error)
