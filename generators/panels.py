"""Grafana dashboards as tables of panels, and the functions to build their queries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24


@dataclass(frozen=True)
class Panel:
    """A panel: its title, a sentence that describes it, the unit in Grafana's terms, and its queries by their legends.

    A `stat` panel shows only the last values, in orange from `bad` on.
    """

    title: str
    says: str
    unit: str
    queries: Mapping[str, str]
    kind: Literal["stat", "timeseries"] = "timeseries"
    width: int = 12
    bad: float | None = None


@dataclass(frozen=True)
class Dashboard:
    """A dashboard: panels by the titles of their rows. `file` is the name of its file and its uid in Grafana."""

    file: str
    title: str
    says: str
    rows: Mapping[str, Sequence[Panel]]


def of(metric: str) -> str:
    """Return the selector of a metric's samples for the chosen jobs and instances."""
    return f'{metric}{{name=~"$job",instance=~"$instance"}}'


def gauge(metric: str, *by: str, over: str = "sum") -> str:
    """Return the query that aggregates a gauge."""
    return f"{over} by ({', '.join(by)}) ({of(metric)})" if by else f"{over}({of(metric)})"


def rate(metric: str, *by: str) -> str:
    """Return the query for a counter's increase per second."""
    return f"sum by ({', '.join(by)}) (rate({of(metric)}[$__rate_interval]))"


def growth(metric: str, *by: str) -> str:
    """Return the query for a gauge's increase per second over the last 15 min."""
    return f"sum by ({', '.join(by)}) (deriv({of(metric)}[15m]))"


def hour(*metrics: str) -> str:
    """Return the query for the increase of several counters in the last hour. A missing counter counts as 0."""
    return " + ".join(f"(sum(increase({of(metric)}[1h])) or vector(0))" for metric in metrics)


def quantile(share: float, metric: str, *by: str) -> str:
    """Return the query for a quantile of a histogram's observations."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', *by, 'le')})"


def stat(title: str, says: str, unit: str, query: str, bad: float | None = None) -> Panel:
    """Return a panel with a single number."""
    return Panel(title, says, unit, {title.lower(): query}, "stat", 4, bad)


def model(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard in Grafana's JSON model."""
    variables = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        _variable("job", "Job", "label_values(rowkind_job_up, name)"),
        _variable("instance", "Instance", 'label_values(rowkind_job_up{name=~"$job"}, instance)'),
    ]
    return {
        "uid": dashboard.file,
        "title": dashboard.title,
        "description": dashboard.says,
        "tags": ["rowkind"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "links": [{"type": "dashboards", "title": "Rowkind", "tags": ["rowkind"], "asDropdown": False}],
        "templating": {"list": variables},
        "panels": [panel | {"id": number} for number, panel in enumerate(_panels(dashboard), 1)],
    }


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """Yield every panel with its position, from left to right and top to bottom."""
    y = 0
    for title, panels in dashboard.rows.items():
        yield {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": _place(0, y, _COLUMNS, 1)}
        x, y = 0, y + 1
        for panel in panels:
            height = 4 if panel.kind == "stat" else 8
            yield _panel(panel) | {"gridPos": _place(x, y, panel.width, height)}
            x += panel.width
            if x == _COLUMNS:
                x, y = 0, y + height


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "timeseries":
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
        options: dict[str, Any] = {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    else:
        steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
        steps += [] if panel.bad is None else [{"color": "orange", "value": panel.bad}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        options = {"colorMode": "value", "graphMode": "area", "reduceOptions": {"calcs": ["lastNotNull"]}}
    targets = [
        {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
        for at, (legend, query) in enumerate(panel.queries.items())
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }


def text(dashboard: Dashboard) -> str:
    """Return the text of the dashboard's file."""
    return json.dumps(model(dashboard), indent=1) + "\n"
