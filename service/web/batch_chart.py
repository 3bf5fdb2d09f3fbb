"""Draw a chart of a query's last batches: their durations, and the number of rows that each batch read."""

from __future__ import annotations

from rowkind.quantities import counted, duration
from rowkind.service.monitoring.status import BatchProgress, QueryStatus

_SLOTS = 60
_WIDTH, _HEIGHT, _GAP = 600, 72, 2


def chart(query: QueryStatus) -> str:
    """Return an SVG chart with a caption and, for users who cannot see the chart, a table of the same data."""
    if not query.batches:
        return '<figure class="batches"><figcaption>No batch has finished yet.</figcaption></figure>'
    most = max(batch.seconds for batch in query.batches) or 1.0
    slot = _WIDTH / _SLOTS
    bars = "".join(
        _bar(batch, (_SLOTS - len(query.batches) + place) * slot, slot, most)
        for place, batch in enumerate(query.batches)
    )
    last = query.batches[-1]
    one = len(query.batches) == 1
    words = (
        f"last {'batch' if one else f'{len(query.batches)} batches'}: median {duration(query.usual_seconds)}, maximum "
        f"{duration(most)}; batch {last.number:,} took {duration(last.seconds)} for {counted(last.rows_in, 'row')}"
    )
    rows = "".join(
        f"<tr><td>{each.number:,}</td><td>{each.seconds:.2f}</td><td>{each.rows_in:,}</td><td>{each.rows_out:,}</td></tr>"
        for each in reversed(query.batches)
    )
    return f"""<figure class="batches">
<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">
<path d="M0 {_HEIGHT - 0.5}H{_WIDTH}"/>
{bars}</svg>
<figcaption>{words}</figcaption>
<details id="batches.{query.name}"><summary>as a table</summary><div class="scroll" tabindex="0" role="region"
aria-label="Batches of query {query.name}"><table><thead><tr><th scope="col">batch</th><th scope="col">seconds</th>
<th scope="col">rows read</th><th scope="col">changes written</th></tr></thead><tbody>
{rows}</tbody></table></div></details>
</figure>"""


def _bar(batch: BatchProgress, x: float, slot: float, most: float) -> str:
    height = max(2.0, (_HEIGHT - 2) * batch.seconds / most)
    title = (
        f"batch {batch.number:,}: {duration(batch.seconds)}, rows read: {batch.rows_in:,}, "
        f"changes written: {batch.rows_out:,}"
    )
    return (
        f'<rect x="{x + _GAP / 2:.1f}" y="{_HEIGHT - height:.1f}" width="{slot - _GAP:.1f}" height="{height:.1f}">'
        f"<title>{title}</title></rect>"
    )
