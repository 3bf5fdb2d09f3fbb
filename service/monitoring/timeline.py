"""The time line of a job's incidents over the last day: what happened, when it began, and when it ended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rowkind.service.monitoring.status import IncidentSpan, SpanKind

DAY_SECONDS = 86_400.0

_MOST = 200
"""The maximum number of spans. If there are more, the oldest one that has ended is dropped."""

_SAME_SECONDS = 60.0
"""An incident that recurs within this time continues the span before, as restarts in quick succession do."""


@dataclass
class Timeline:
    """The spans of the last day, in the order in which they began. Every parameter `now` is Unix time in seconds."""

    _spans: list[IncidentSpan] = field(default_factory=list)

    def begin(self, kind: SpanKind, query: str, what: str, now: float) -> None:
        """Begin a span, unless the same one has not ended yet."""
        last = self._last(kind, query, what)
        if last is None or (last.ended is not None and last.ended < now - _SAME_SECONDS):
            self._spans.append(IncidentSpan(kind, query, what, now, None))
            if len(self._spans) > _MOST:
                self._spans.remove(next((each for each in self._spans if each.ended is not None), self._spans[0]))
        elif last.ended is not None:
            self._replace(last, replace(last, ended=None, times=last.times + 1))

    def end(self, kind: SpanKind, query: str, now: float, what: str | None = None) -> None:
        """End the open spans of this kind and query; if `what` is given, only that one."""
        for span in [*self._spans]:
            if (span.kind, span.query, span.ended) == (kind, query, None) and what in (None, span.what):
                self._replace(span, replace(span, ended=now))

    def mark(self, kind: SpanKind, query: str, what: str, now: float) -> None:
        """Add an incident without a duration."""
        self.begin(kind, query, what, now)
        self.end(kind, query, now, what)

    def latest(self, now: float) -> tuple[IncidentSpan, ...]:
        """Return the spans of the last day."""
        self._spans = [each for each in self._spans if each.ended is None or each.ended > now - DAY_SECONDS]
        return tuple(sorted(self._spans, key=lambda span: span.began))

    def _last(self, kind: SpanKind, query: str, what: str) -> IncidentSpan | None:
        same = (each for each in reversed(self._spans) if (each.kind, each.query, each.what) == (kind, query, what))
        return next(same, None)

    def _replace(self, old: IncidentSpan, new: IncidentSpan) -> None:
        self._spans[self._spans.index(old)] = new
