"""Draw the incidents of the last day on a time line, one lane per kind."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rowkind.quantities import duration
from rowkind.service.monitoring.status import IncidentSpan, JobStatus, SpanKind
from rowkind.service.monitoring.timeline import DAY_SECONDS
from rowkind.service.web.live_page import moment

_LANES: dict[SpanKind, str] = {
    "failed": "failed",
    "outage": "Kafka unavailable",
    "restart": "restarting",
    "rebuild": "state rebuilt",
    "filling": "filling state",
    "warning": "warning",
    "start": "process start",
}
_MARKS = "".join(
    f"<span>{mark}</span>"
    for mark in ("\N{MINUS SIGN}24 h", "\N{MINUS SIGN}18 h", "\N{MINUS SIGN}12 h", "\N{MINUS SIGN}6 h", "now")
)
"""The labels of the axis. The style sheet distributes them evenly."""


def timeline(status: JobStatus) -> str:
    """Return the time line as HTML, or an empty text if there was no incident in the last day."""
    if all(span.kind == "start" for span in status.spans):
        return ""
    lanes = "".join(
        _lane(kind, name, [span for span in status.spans if span.kind == kind], status.at)
        for kind, name in _LANES.items()
        if any(span.kind == kind for span in status.spans)
    )
    rows = "".join(_row(span, status.at) for span in reversed(status.spans))
    return f"""<section class="timeline"><h2>Last 24 hours</h2>
<div class="lanes">{lanes}<div class="hours"><div>{_MARKS}</div></div></div>
<details id="timeline.table"><summary>as a table</summary><div class="scroll" tabindex="0" role="region"
aria-label="Incidents of the last 24 hours"><table><thead><tr><th scope="col">began</th><th scope="col">lasted</th>
<th scope="col">query</th><th scope="col">incident</th></tr></thead><tbody>{rows}</tbody></table></div></details>
</section>"""


def _lane(kind: SpanKind, name: str, spans: Sequence[IncidentSpan], now: float) -> str:
    bars = "".join(_bar(span, now) for span in spans)
    return f'<div class="lane {kind}"><span>{name}</span><div>{bars}</div></div>'


def _bar(span: IncidentSpan, now: float) -> str:
    begin = max(0.0, 1 - (now - span.began) / DAY_SECONDS)
    end = min(1.0, 1 - (now - (now if span.ended is None else span.ended)) / DAY_SECONDS)
    title = f"{span.query and f'query {span.query}: '}{span.what}, {_lasted(span, now)}{_times(span)}"
    return f'<i style="left:{begin:.3%};width:{max(0.0, end - begin):.3%}" title="{escape(title)}"></i>'


def _lasted(span: IncidentSpan, now: float) -> str:
    if span.ended is None:
        return f"for {duration(now - span.began)} so far"
    return duration(span.ended - span.began) if span.ended > span.began else "a moment"


def _times(span: IncidentSpan) -> str:
    return f", {span.times} times" if span.times > 1 else ""


def _row(span: IncidentSpan, now: float) -> str:
    return (
        f"<tr><td>{moment(span.began)}</td><td>{_lasted(span, now)}</td><td>{escape(span.query)}</td>"
        f"<td>{_LANES[span.kind]}: {escape(span.what)}{_times(span)}</td></tr>"
    )
