"""Plans of sinks that print or discard their changes: the key by which updates are recognised, and `explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rowkind.operators.changelog import SYMBOLS
from rowkind.service.job.load import loaded
from rowkind.service.job.model import Job
from rowkind.service.plan.explain.render import render
from rowkind.service.plan.fingerprint import differences, fingerprint
from rowkind.service.plan.pipeline import plan
from rowkind.service.query import trial


def job(sql: str, **sink: Any) -> Job:
    """Return a job with two tables and one sink, which prints unless `sink` says otherwise."""
    tables = {
        "rows": {"format": "json", "mode": "append", "columns": {"id": "BIGINT NOT NULL", "k": "STRING"}},
        "last": {
            "format": "json",
            "mode": "upsert",
            "primary_key": "id",
            "columns": {"id": "BIGINT NOT NULL", "k": "STRING"},
        },
    }
    sinks = {"result": {**(sink or {"to": "print"}), "sql": sql}}
    return loaded(json.dumps({"job": "j", "tables": tables, "sinks": sinks}), Path("job.yaml"), {})


GROUPS = "SELECT k, COUNT(*) AS n FROM rows GROUP BY k"


@pytest.mark.parametrize(
    ("sql", "key", "kinds"),
    [
        (GROUPS, ("k",), ["+I", "-U", "+U"]),
        ("SELECT COUNT(*) AS n FROM rows", (), ["+I", "-U", "+U"]),
        ("SELECT id, k FROM last", ("id",), ["+I", "+I"]),
        ("SELECT n FROM (SELECT k, COUNT(*) AS n FROM rows GROUP BY k)", (), ["+I", "-D", "+I"]),
        ("SELECT l.id, r.id AS other FROM last l JOIN rows r ON l.k = r.k", (), []),
        ("SELECT id FROM rows", (), ["+I", "+I"]),
    ],
)
def test_an_update_is_recognised_by_the_results_own_key_if_that_needs_no_shuffle(
    sql: str, key: tuple[str, ...], kinds: list[str]
) -> None:
    """Otherwise the old row is deleted and the new row inserted. No such sink shuffles its changes."""
    of = job(sql)
    sink = plan(of, "result")
    assert sink.key == key
    assert not sink.exchange
    table = "last" if "FROM last" in sql else "rows"
    rows = [{"table": table, "op": "+I", "row": {"id": number, "k": "a"}} for number in (1, 2)]
    engine = trial.in_memory(pytest.fail)
    found = engine(of, sink, trial.read(of, rows, "rows", 1))
    assert [SYMBOLS[kind] for changes in found for kind in changes.kind.tolist()] == kinds


@pytest.mark.parametrize(
    ("to", "title"),
    [("print", "retract on (k), printed to the log, at least once"), ("blackhole", "retract on (k), discarded")],
)
def test_explain_says_where_the_changes_go(to: str, title: str) -> None:
    """The text and the diagram have a sentence, the JSON document `to` in place of the topic and the delivery."""
    of = job(GROUPS, to=to)
    query = {"main": (plan(of, "result"),)}
    assert f"sink result: {title}" in render(of, query, "text")
    root = json.loads(render(of, query, "json"))["queries"][0]["sinks"][0]
    assert (root["to"], root["key"]) == (to, ["k"])
    assert not {"topic", "delivery"} & root.keys()
    assert "topic" not in render(of, query, "mermaid").partition("scan_rows")[0]


def test_print_and_blackhole_replace_each_other_without_a_rebuild() -> None:
    """The checkpoint's facts are the same for both, and differ from those of a topic."""
    printed, nowhere = (fingerprint(plan(job(GROUPS, to=to), "result")) for to in ("print", "blackhole"))
    topic = fingerprint(plan(job(GROUPS, mode="retract", key="k"), "result"))
    assert printed == nowhere
    assert [line.partition(":")[0] for line in differences(topic, printed)] == ["sink.topic"]


def test_a_job_that_only_prints_needs_no_registry() -> None:
    """Only topics have formats, so neither the default format of a sink nor a missing registry matters."""
    of = job(GROUPS).model_copy(update={"kafka": {"bootstrap.servers": "localhost:9"}, "checkpoint": "/tmp/c"})
    of.check_runnable()
