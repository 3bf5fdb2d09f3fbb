"""Show the last changes of a sink, and the last dead letters of a query, as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from rowkind.service.monitoring.status import LetterStatus, QueryStatus, SinkStatus

_LONGEST = 80
"""The maximum number of characters of a value. The rest of a longer value is cut off."""

HIDDEN = (
    '<p class="hidden-rows">Rows are hidden, because other machines may reach this page without a login. To '
    "show them, set <code>user</code> and <code>password</code> in the job's section <code>status</code>.</p>"
)


def changes(sink: SinkStatus, *, shown: bool) -> str:
    """Return the last changes of a sink as HTML."""
    if not shown:
        return HIDDEN
    if not sink.last:
        return '<p class="hidden-rows">No change has been written since the process was started.</p>'
    columns = list(dict.fromkeys(name for change in sink.last for name in change.row or ()))
    rows = "".join(
        f'<tr class="{_STYLES[each.kind]}"><td>{_clock(each.at)}</td><td class="kind">{each.kind}</td>'
        + (
            f'<td colspan="{len(columns)}">a row of more than 4 kB</td>'
            if each.row is None
            else "".join(_cell(each.row.get(name)) for name in columns)
        )
        + "</tr>"
        for each in sink.last
    )
    return _table(f"Last changes of {sink.name}", ["written", "kind", *columns], rows)


_STYLES = {"+I": "inserted", "+U": "inserted", "-U": "retracted", "-D": "retracted"}


def letters(query: QueryStatus, *, shown: bool) -> str:
    """Return the last dead letters of a query as HTML, or an empty text if there are none."""
    if not any(sum(table.dead_letters.values()) for table in query.tables) and not query.letters:
        return ""
    rows = "".join(map(_letter, query.letters))
    columns = ["written", "table", "stage", "record", "reason"]
    content = _table(f"Last dead letters of {query.name}", columns, rows) if query.letters else ""
    if not shown:
        content = HIDDEN
    return (
        f'<section class="letters"><h3>Last dead letters</h3>{content}<p class="hidden-rows">'
        f"<code>rowkind dead-letters list</code> shows all of them with their content.</p></section>"
    )


def _letter(letter: LetterStatus) -> str:
    origin = "" if letter.topic is None else f"{letter.topic}[{letter.partition}]@{letter.offset}"
    return (
        f"<tr><td>{_clock(letter.at)}</td><td>{escape(letter.table)}</td><td>{escape(letter.stage)}</td>"
        f'<td>{escape(origin)}</td><td class="long">{escape(letter.message)}</td></tr>'
    )


def _table(name: str, columns: Sequence[str], rows: str) -> str:
    heads = "".join(f'<th scope="col">{escape(each)}</th>' for each in columns)
    return (
        f'<div class="scroll rows" tabindex="0" role="region" aria-label="{escape(name)}"><table><thead><tr>{heads}'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cell(value: Any) -> str:
    if value is None:
        return '<td class="null">NULL</td>'
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"<td>{escape(text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…')}</td>"


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"
