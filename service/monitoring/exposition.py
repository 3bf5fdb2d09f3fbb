"""Export all metrics of this process to Prometheus."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from rowkind.operators.columns.block import Counters
from rowkind.service.execute.metrics import METRICS, Metric, MetricName, parse

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""The upper bounds of histogram buckets, in seconds."""


class Exposition:
    """Collects a job's counters, gauges and histograms. Every sample has the job's name as the label `name`."""

    def __init__(self, job: str) -> None:
        self._job = job
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._metrics = {metric.name: (metric, _instrument(metric, self._registry)) for metric in METRICS}
        self._shards: dict[tuple[str, tuple[str, ...]], dict[str, float]] = {}
        self._made_of = defaultdict[str, list[Metric]](list)
        for metric in METRICS:
            if metric.made_of is not None:
                self._made_of[metric.made_of].append(metric)

    def set(self, name: MetricName, value: float, /, **labels: object) -> None:
        """Set a gauge, or add to a counter."""
        metric, child = self._metrics[name][0], self._child(name, labels)
        if metric.kind == "counter":
            child.inc(value)
        else:
            child.set(value)

    def observe(self, name: MetricName, value: float, times: float, /, **labels: object) -> None:
        """Add a value to a histogram, `times` times."""
        self._child(name, labels).observe(value, times)

    def add(self, counters: Counters, query: str, ended: float | None = None) -> None:
        """Add the samples of a query's batch.

        `ended`: when the batch ended, in Unix seconds, or None for the current time. The samples need no label for the
        query.
        """
        for text, value in counters.items():
            name, labels = parse(text)
            labels["query"] = query
            metric, _ = self._metrics[name]  # type: ignore[index] # a KeyError says that a metric lacks its entry
            if metric.shards is not None:
                shard = labels.pop("shard")
                by_shard = self._shards.setdefault((name, tuple(labels[label] for label in metric.labels)), {})
                by_shard[shard] = value
                for each in (metric, *self._made_of[name]):
                    assert each.shards is not None, f"{each.name} is computed from values by shard"
                    self.set(each.name, each.shards(by_shard.values()), **labels)
            elif metric.kind == "histogram":
                made = int(labels.pop("made")) / 1000
                self.observe(metric.name, max(0.0, (ended or time.time()) - made), value, **labels)
            else:
                self.set(metric.name, value, **labels)

    def _child(self, name: MetricName, labels: Mapping[str, object]) -> Any:
        metric, instrument = self._metrics[name]
        return instrument.labels(*(str(labels[label]) for label in metric.labels)) if metric.labels else instrument

    def text(self) -> bytes:
        """Return all metrics in Prometheus text format."""
        return bytes(generate_latest(_Named(self._registry, self._job)))


@dataclass(frozen=True)
class _Named(Collector):
    """The metrics of a registry, with the job's name as a label."""

    registry: CollectorRegistry
    job: str

    def collect(self) -> Iterator[Family]:
        for family in self.registry.collect():
            family.samples = [each._replace(labels={"name": self.job, **each.labels}) for each in family.samples]
            yield family


class _Observed:
    """The observations of a histogram for one combination of labels."""

    def __init__(self) -> None:
        self.counts = [0.0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: float) -> None:
        self.counts[sum(value > bound for bound in BUCKETS)] += times
        self.sum += value * times


class _Histogram(Collector):
    """A histogram that, unlike the Prometheus client's, can observe a value many times in one call."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._children: dict[tuple[str, ...], _Observed] = {}

    def labels(self, *labels: str) -> _Observed:
        return self._children.setdefault(labels, _Observed())

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._metric.name, self._metric.help, labels=self._metric.labels)
        bounds = [*map(str, BUCKETS), "+Inf"]
        for labels, observed in self._children.items():
            family.add_metric(labels, list(zip(bounds, accumulate(observed.counts), strict=True)), observed.sum)
        yield family


def _instrument(metric: Metric, registry: CollectorRegistry) -> Any:
    match metric.kind:
        case "counter":
            return Counter(metric.name, metric.help, metric.labels, registry=registry)
        case "gauge":
            return Gauge(metric.name, metric.help, metric.labels, registry=registry)
        case "histogram":
            histogram = _Histogram(metric)
            registry.register(histogram)
            return histogram
