"""The initial counters of a query."""

from __future__ import annotations

from pathlib import Path

from rowkind.service.execute.metrics import parse
from rowkind.service.physical.graph import graph
from rowkind.service.query.initial_counters import births
from tests.unit.run.test_graph import COUNT, JOIN, plans


def test_counters_that_alerts_rest_on_are_born_at_0(tmp_path: Path) -> None:
    """Counters of dead letters, broken promises, unmatched retractions and written rows start at 0."""
    born = births(graph(plans(tmp_path, JOIN, COUNT)))
    assert set(born.values()) == {0}
    by_name: dict[str, list[dict[str, str]]] = {}
    for name, labels in map(parse, born):
        by_name.setdefault(name, []).append(labels)
    of = [(each["table"], each["reason"]) for each in by_name["rowkind_dead_letters_total"]]
    assert {table for table, _ in of} == {"u", "r"}
    assert len(of) == 2 * 7
    assert len(by_name["rowkind_broken_promises_total"]) == 2 * 3
    assert {each["sink"] for each in by_name["rowkind_unmatched_retractions_total"]} == {"s0", "s1"}
    assert [each["sink"] for each in by_name["rowkind_rows_out_total"]] == ["s0", "s1"]
    assert "rowkind_late_rows_total" not in by_name, "without a watermark nothing is late"
