"""The frame of the pages that follow what they show: of a job, of all jobs of a service, of one that does not run.

A page is made whole and needs nothing but itself. Its script only asks for it again every two seconds and puts the new
one in the place of the old; without it the browser does so, less smoothly.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from string import Template

from rowkind.service.monitoring.status import Incident
from rowkind.service.plan.explain.html import ICON, style

_FILES = resources.files("rowkind.service.web")
_STYLE = style() + (_FILES / "status.css").read_text("utf-8")
_TEMPLATE = Template((_FILES / "status.html").read_text("utf-8"))
_SCRIPT = (_FILES / "status.js").read_text("utf-8")
_AT_ONCE = 3
"""So many of the last errors are seen unasked; the others are unfolded."""

HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "script-src 'sha256-" + base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode() + "'",
}
"""What a browser is told with the page: to run its own script, and to fetch nothing from elsewhere."""

ALL_JOBS = '<a href="../../">all jobs</a>'
"""From the page of a job to that of its service."""


def framed(title: str, heading: str, links: Mapping[str, str], live: str) -> str:
    """A page of which `live` follows what it shows; title and links are text, all else is HTML."""
    return _TEMPLATE.substitute(
        title=escape(title),
        heading=heading,
        links="\n".join(f'<a href="{address}">{escape(text)}</a>' for address, text in links.items()),
        live=live,
        icon=ICON,
        style=_STYLE,
        script=_SCRIPT,
    )


def within(page: bytes) -> bytes:
    """The page of a job as its service shows it: with the way to all of them."""
    return page.replace(b'<nav aria-label="Other pages">', f'<nav aria-label="Other pages">{ALL_JOBS}'.encode(), 1)


def pill(state: str, times: int | None = None) -> str:
    """A state in its colour; of several jobs, how many are in it."""
    return f'<span class="pill {state}">{"" if times is None else f"{times} "}{state}</span>'


def moment(at: float) -> str:
    """A moment in Unix time, as people read it."""
    read = datetime.fromtimestamp(at, UTC)
    return f'<time datetime="{read.isoformat()}">{read:%Y-%m-%d %H:%M:%S} UTC</time>'


def about(state: str, more: str, seen: float, version: str) -> str:
    """The first line of a page: the state, as HTML, then more that leads on, when that was, and who says so."""
    return (
        f'<p class="about"><span role="status" id="state">{state}</span>{escape(more)} seen {moment(seen)} · '
        f"Rowkind {version}</p>"
    )


def trouble(kind: str, head: str, what: str, remedy: str) -> str:
    """What is wrong now, under a head of HTML, and what to do about it."""
    todo = f'<p class="remedy">{escape(remedy)}</p>' if remedy else ""
    return f'<div class="trouble {kind}">{head and f"<h2>{head}</h2>"}{told(what)}{todo}</div>'


def told(what: str) -> str:
    """A message; one of several lines may point with a caret at one of them."""
    return f'<p class="lines">{escape(what)}</p>' if "\n" in what else f"<p>{escape(what)}</p>"


def errors(incidents: Sequence[Incident], *, several: bool) -> str:
    """What went wrong of late, of which of `several` queries."""
    if not incidents:
        return ""
    items = [
        f"<li>{moment(each.at)}{f' <b>{each.times} times</b>' if each.times > 1 else ''}"
        f"{f' <span>query {escape(each.query)}</span>' if several and each.query else ''}"
        f'{told(each.what)}<p class="remedy">{escape(each.remedy)}</p></li>'
        for each in incidents
    ]
    seen, more = _list(items[:_AT_ONCE]), items[_AT_ONCE:]
    if more:
        seen += f'<details id="errors.more"><summary>{len(more)} more</summary>{_list(more)}</details>'
    return f'<section class="errors"><h2>Recent errors</h2>\n{seen}\n</section>'


def _list(items: Sequence[str]) -> str:
    return f'<ol class="incidents">{"".join(items)}</ol>'
