"""The common frame of the live pages: for a job, for all jobs of a service, and for a job that is not running.

Each page is complete and self-contained. Its script fetches the page every 2 s and replaces the content. Without
JavaScript, the browser reloads the whole page every 5 s.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from string import Template

from rowkind.service.monitoring.status import Incident
from rowkind.service.plan.explain.html import ICON, style

_FILES = resources.files("rowkind.service.web")
_STYLE = style() + "".join((_FILES / name).read_text("utf-8") for name in ("status.css", "graph.css"))
_TEMPLATE = Template((_FILES / "status.html").read_text("utf-8"))
_SCRIPT = (_FILES / "status.js").read_text("utf-8")
_AT_ONCE = 3
"""How many of the most recent errors are always visible; the others are folded."""


def headers(script: str) -> Mapping[str, str]:
    """Return a page's HTTP headers: the browser may run only this script, and load nothing from other servers."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "Cache-Control": "no-store",
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
        f"script-src 'sha256-{digest}'",
    }


HEADERS = headers(_SCRIPT)
"""The HTTP headers of a live page."""

ALL_JOBS = '<a href="../../">all jobs</a>'
"""The link from a job's page to the page of its service."""


def framed(title: str, heading: str, links: Mapping[str, str], live: str) -> str:
    """Return a page whose part `live` is updated. The title and link texts are plain text; the rest is HTML."""
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
    """Return a job's page with a link to all jobs, as the multi-job service shows it."""
    return page.replace(b'<nav aria-label="Other pages">', f'<nav aria-label="Other pages">{ALL_JOBS}'.encode(), 1)


def pill(state: str, times: int | None = None) -> str:
    """Return a state as a coloured label, with the number of jobs in this state if `times` is given."""
    return f'<span class="pill {state}">{"" if times is None else f"{times} "}{state}</span>'


def moment(at: float) -> str:
    """Return a Unix time in seconds as readable HTML."""
    read = datetime.fromtimestamp(at, UTC)
    return f'<time datetime="{read.isoformat()}">{read:%Y-%m-%d %H:%M:%S} UTC</time>'


def numbers(found: Iterable[tuple[str, str, str]]) -> str:
    """Return numbers as HTML, each with a label, a value, and a style: `bad`, `odd`, or empty for normal."""
    items = "".join(f'<div class="{look}"><dt>{name}</dt><dd>{escape(value)}</dd></div>' for name, value, look in found)
    return f'<dl class="numbers">{items}</dl>'


def about(state: str, more: str, seen: float, version: str) -> str:
    """Return the first line of a page: the state (HTML), additional text, the time of the status, and the version."""
    return (
        f'<p class="about"><span role="status" id="state">{state}</span>{escape(more)} last updated {moment(seen)} · '
        f"Rowkind {version}</p>"
    )


def trouble(kind: str, head: str, what: str, remedy: str) -> str:
    """Return a current problem and its remedy as HTML, under the heading `head`, which is HTML, too."""
    todo = f'<p class="remedy">{escape(remedy)}</p>' if remedy else ""
    return f'<div class="trouble {kind}">{head and f"<h2>{head}</h2>"}{told(what)}{todo}</div>'


def told(what: str) -> str:
    """Return a message as HTML. Line breaks are kept, because a caret may point into the line above."""
    return f'<p class="lines">{escape(what)}</p>' if "\n" in what else f"<p>{escape(what)}</p>"


def errors(incidents: Sequence[Incident], *, several: bool) -> str:
    """Return the recent errors as HTML. If there are `several` queries, each error names its query."""
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
