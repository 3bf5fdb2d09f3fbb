"""`rowkind explain` in each of its formats, for the plans of all cases and some additional ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rowkind.service.cli import main
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.explain import description, json_document, values
from rowkind.service.plan.explain.describe import describe
from rowkind.service.plan.explain.description import Step
from rowkind.service.plan.explain.json_document import StepHead
from rowkind.service.plan.explain.render import Format, explain, render
from rowkind.service.plan.explain.values import ABSENT, documented
from rowkind.service.plan.pipeline import plan
from tests.plan.cases import FOLDER, Case, cases, planned
from tests.plan.plan_document import PAGE, SECTIONS, choices, keys, page

PLANNED = [case for case in cases() if not case.is_refused]
FUSED = """
SELECT c.name, x.n FROM customers c
JOIN (SELECT customer_id, COUNT(*) AS n FROM clicks GROUP BY customer_id) x ON c.customer_id = x.customer_id
"""
NOT_IN = "SELECT order_id FROM orders WHERE order_id NOT IN (SELECT order_id FROM payments)"
TOP = """
SELECT customer_id, page, rn
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY at DESC) AS rn FROM clicks) t WHERE rn <= 3
"""


@pytest.mark.sampled(40)
@pytest.mark.parametrize("case", PLANNED, ids=lambda case: case.path.stem)
def test_every_value_of_the_json_is_documented(case: Case) -> None:
    """A value of a key with listed choices is one of these choices."""
    job, sink = planned(case)
    query = describe("main", [sink], {name: each.sql for name, each in job.sinks.items()})
    values = [each for step in query.sinks[0].root.walk() for each in _values(step)]
    for value in (*values, *query.sinks[0].advice):
        for name, said in keys(type(value)):
            found = getattr(value, name)
            assert found is ABSENT or not choices(said.__origin__) or found in choices(said.__origin__), (name, found)


def test_the_page_of_the_json_form_is_of_today() -> None:
    """docs/reference/plan-document.md equals the declarations and contains every class of values."""
    assert page() == PAGE.read_text()
    written = {of for classes in SECTIONS.values() for of in classes}
    declared = {
        each
        for module in (values, description, json_document)
        for each in vars(module).values()
        if isinstance(each, type)
    }
    assert {each for each in declared if is_dataclass(each) and documented(each)} == written


def _values(step: Step) -> Iterator[Any]:
    """Yield the values of a step, its states and its output."""
    yield StepHead(step.name, step.kind, step.title, step.stage, None)
    yield from step.values
    yield from (each.values for each in step.state)
    yield from () if step.way is None else (step.way,)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("case", PLANNED, ids=lambda case: case.path.stem)
def test_every_chart_is_a_flowchart(case: Case) -> None:
    """Every line of a chart is valid Mermaid, and every edge connects existing nodes."""
    chart = Chart(_of_case(case, "mermaid"))
    assert {end for first, _, last in chart.edges for end in (first, last)} <= set(chart.nodes)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("case", PLANNED, ids=lambda case: case.path.stem)
def test_every_page_is_whole(case: Case) -> None:
    """Every HTML page closes its tags, loads nothing external, and links only to its own anchors."""
    page = Page(_of_case(case, "html"))
    assert page.open == []
    assert page.links <= {f"#{each}" for each in page.ids}


def test_json_says_what_a_join_keeps(tmp_path: Path) -> None:
    """The JSON of a join has both sides with layout, reason, TTL and the exchange of their rows."""
    sink = _only(_rendered(Case.read(FOLDER / "left_join.txt"), tmp_path, "json"))
    (join,) = sink["inputs"]
    assert (join["name"], join["kind"], join["join"], join["on"]) == (
        "join_1",
        "join",
        "left",
        ["o.order_id = p.order_id"],
    )
    left, right = join["state"]
    assert left == {
        "name": "left",
        "of": "orders",
        "layout": "one row per key",
        "reason": "the join's key contains a unique key",
        "ttl_ms": 30 * 24 * 3_600_000,
        "by_arrival": True,
    }
    assert (right["of"], right["ttl_ms"]) == ("payments", 12 * 3_600_000)
    assert [each["goes"]["role"] for each in join["inputs"]] == ["left", "right"]
    assert join["inputs"][0]["goes"]["by"] == ["o.order_id"]
    assert sink["sql"].startswith("SELECT o.order_id")


def test_json_says_what_a_rank_does(tmp_path: Path) -> None:
    """The JSON of a rank has its function, range, partition, order and strategy."""
    sink = _only(_rendered(_case(TOP), tmp_path, "json"))
    (rank,) = sink["inputs"]
    assert (rank["kind"], rank["function"], rank["first"], rank["last"]) == ("rank", "row_number", 1, 3)
    assert (rank["partition_by"], rank["order_by"]) == (["t.clicks.customer_id"], ["t.clicks.at DESC"])
    assert rank["strategy"] == "append"


def test_a_chart_shows_stages_and_edges(tmp_path: Path) -> None:
    """Operators of one stage are in a subgraph with a dotted edge between them, and state is a cylinder."""
    chart = Chart(_rendered(_case(FUSED), tmp_path, "mermaid"))
    assert chart.stages == {"aggregate_1": "stage_1", "join_1": "stage_1"}
    assert chart.nodes["join_1"].startswith("[(")
    assert chart.nodes["scan_c"].startswith("[/")
    assert chart.nodes["sink_result"].startswith("[[")
    assert chart.edges == {
        ("join_1", "-->", "sink_result"): "retract, not shuffled",
        ("scan_c", "-->", "join_1"): "left: upsert, by c.customer_id",
        ("aggregate_1", "-.->", "join_1"): "right: retract, same stage",
        ("scan_x_clicks", "-->", "aggregate_1"): "append, added up, by x.clicks.customer_id",
    }


def test_text_tells_a_stage_from_a_shuffle(tmp_path: Path) -> None:
    """The text shows where rows are pre-aggregated before the shuffle, and where there is no shuffle."""
    said = " ".join(explain([_plan(_case(FUSED), tmp_path)]).split())
    assert "exchange to join_1 as its right, in the same stage, without a shuffle" in said
    assert "exchange to aggregate_1, added up in each task first, then shuffled by" in said


def test_not_in_shows_its_facts_and_its_price(tmp_path: Path) -> None:
    """The tree shows the facts about the right side of NOT IN, and the advice mentions the cost."""
    said = explain([_plan(_case(NOT_IN), tmp_path)])
    assert "whether payments has rows" in said
    assert "whether payments has NULLs" in said
    assert "NOT EXISTS avoids this" in said
    assert "to anti_join_1, on every shard" in said


@pytest.mark.parametrize(
    ("sql", "advice"),
    [
        ("SELECT MAX(quantity) AS m FROM moves", "keeps all distinct values for MAX(moves.quantity)"),
        (
            "SELECT * FROM (SELECT item, ROW_NUMBER() OVER (ORDER BY shop) AS n FROM moves) t WHERE n <= 2",
            "has no PARTITION BY",
        ),
        (
            "SELECT * FROM (SELECT item, RANK() OVER (PARTITION BY item ORDER BY shop) AS n FROM moves) t WHERE n < 3",
            "rank_1 keeps every row of moves",
        ),
        ("SELECT p.method, c.page FROM payments p CROSS JOIN clicks c", "no equal key"),
        ("SELECT customer_id, name FROM customers", "declare customers as a retract table with `exact: true`"),
        ("SELECT customer_id, SUM(amount) AS s FROM orders GROUP BY customer_id", "add `exact: true` to orders"),
    ],
)
def test_advice_names_what_is_dear(sql: str, advice: str, tmp_path: Path) -> None:
    """The advice names operators that store more than necessary or run in one shard, with the remedy."""
    assert advice in " ".join(explain([_plan(_case(sql), tmp_path)]).split())


def test_advice_names_state_that_only_grows(tmp_path: Path) -> None:
    """Without any TTL, one piece of advice lists all rows that are kept indefinitely."""
    case = _case("SELECT o.order_id, c.name FROM orders o JOIN customers c ON o.order_id = c.customer_id")
    job = case.job(tmp_path)
    said = explain([plan(job.model_copy(update={"ttl": None}), "result")])
    assert "without a ttl, rows are kept indefinitely in join_1 (orders and customers)" in said


def test_one_document_has_all_sinks(tmp_path: Path) -> None:
    """The command writes all plans of a job, or one, into one document of each format."""
    job = tmp_path / "job.yaml"
    job.write_text(
        "job: two\ntables:\n  clicks:\n    mode: append\n    columns: {page: STRING, n: INT}\n"
        "views: {some: \"SELECT page, n FROM clicks WHERE page <> '<b>'\"}\n"
        "sinks:\n  first: {mode: append, sql: SELECT page FROM some}\n"
        "  second: {mode: append, sql: SELECT n FROM some}\n"
    )
    document = json.loads(_explained(job, "--format", "json"))
    (query,) = document["queries"]
    assert [sink["name"] for sink in query["sinks"]] == ["first", "second"]
    assert (query["name"], query["stages"], query["tables"]) == ("main", 0, ["clicks"])
    assert list(document["views"]) == ["some"]
    assert _only(_explained(job, "--format", "json", "--sink", "second"))["name"] == "second"
    chart = Chart(_explained(job, "--format", "mermaid"))
    assert {"p1_sink_first", "p2_sink_second"} <= set(chart.nodes)
    page = _explained(job, "--format", "html")
    assert Page(page).open == []
    assert "&lt;b&gt;" in page
    assert "<b>'" not in page
    assert _explained(job, "--full").startswith("query main: 2 sinks over 1 table, no state\n\nsink first: append")


SHARED = """
job: shared
tables:
  orders: {mode: retract, columns: {id: BIGINT NOT NULL, customer: BIGINT NOT NULL, amount: INT}, primary_key: id}
  payments: {mode: append, columns: {order_id: BIGINT, paid: INT}}
views:
  spent: SELECT o.customer, SUM(p.paid) AS total FROM orders o JOIN payments p ON o.id = p.order_id GROUP BY o.customer
sinks:
  big: {mode: upsert, key: customer, sql: "SELECT customer, total FROM spent WHERE total > 100"}
  small: {mode: upsert, key: customer, sql: "SELECT s.customer, s.total FROM spent AS s WHERE s.total < 10"}
"""


def test_what_two_sinks_share_is_described_once(tmp_path: Path) -> None:
    """The second sink refers to the shared step of the first one, in each format."""
    job = tmp_path / "job.yaml"
    job.write_text(SHARED)
    (query,) = json.loads(_explained(job, "--format", "json"))["queries"]
    (first,), (second,) = (sink["inputs"] for sink in query["sinks"])
    assert (query["stages"], first["stage"], first["same_as"], len(first["inputs"])) == (2, 2, None, 1)
    assert (second["stage"], second["same_as"], second["inputs"], second["state"]) == (
        2,
        {"sink": "big", "step": "aggregate_1"},
        [],
        [],
    )
    assert (first["filter"], second["filter"]) == ("spent.total > 100", "s.total < 10")
    assert "same as        aggregate_1 of sink big: the step runs only once" in _explained(job, "--full")
    chart = Chart(_explained(job, "--format", "mermaid"))
    assert [name for name in chart.nodes if "aggregate_1" in name] == ["p1_aggregate_1"]
    assert ("p1_aggregate_1", "-->", "p2_sink_small") in chart.edges
    assert "#big.aggregate_1" in Page(_explained(job, "--format", "html")).links


def _case(sql: str) -> Case:
    return Case(Path("case"), "A query.\nsink: retract", sql.strip(), "")


def _plan(case: Case, folder: Path) -> PhysicalSink:
    return plan(case.job(folder), "result")


def _of_case(case: Case, form: Format) -> str:
    job, sink = planned(case)
    return render(job, {"main": [sink]}, form)


def _rendered(case: Case, folder: Path, form: Format) -> str:
    job = case.job(folder)
    return render(job, {"main": [plan(job, "result")]}, form)


def _only(document: str) -> dict[str, Any]:
    """Return the only sink of a document."""
    ((sink,),) = (query["sinks"] for query in json.loads(document)["queries"])
    assert isinstance(sink, dict), "a sink is an object"
    return sink


def _explained(job: Path, *options: str) -> str:
    result = CliRunner().invoke(main, ["explain", str(job), *options])
    assert result.exit_code == 0, result.output
    return result.output


class Chart:
    """A flowchart, parsed line by line with the part of Mermaid's grammar that plans use."""

    def __init__(self, text: str) -> None:
        self.nodes: dict[str, str] = {}
        self.edges: dict[tuple[str, str, str], str] = {}
        self.stages: dict[str, str] = {}
        inside: list[str] = []
        first, *lines = text.splitlines()
        assert first == "flowchart LR"
        for line in map(str.strip, lines):
            if found := re.fullmatch(r'subgraph (\w+)\["[^"]+"\]', line):
                inside.append(found[1])
            elif line == "end":
                inside.pop()
            elif found := re.fullmatch(
                r'(\w+)(\[\("[^"]+"\)\]|\[/"[^"]+"/\]|\[\["[^"]+"\]\]|\(\["[^"]+"\]\)):::\w+', line
            ):
                assert found[1] not in self.nodes, f"{found[1]} is there twice"
                self.nodes[found[1]] = found[2]
                if inside and "stage_" in inside[-1]:
                    self.stages[found[1]] = inside[-1]
            elif found := re.fullmatch(r'(\w+) (-->|-\.->)\|"([^"]+)"\| (\w+)', line):
                self.edges[found[1], found[2], found[4]] = found[3]
            else:
                assert re.fullmatch(r"classDef \w+ [\w#:,]+", line), line
        assert inside == []


class Page(HTMLParser):
    """A parsed page: its unclosed tags, anchors and links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an opened tag, its anchor and its link."""
        own = tag == "link" and str(dict(attrs)["href"]).startswith("data:")
        assert own or tag not in ("script", "link", "img", "iframe"), "the page must not load anything"
        if own:
            return
        if tag != "meta":
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                assert value not in self.ids, f"{value} is there twice"
                self.ids.add(str(value))
            elif name == "href":
                self.links.add(str(value))

    def handle_endtag(self, tag: str) -> None:
        """Check that a tag closes the one opened last."""
        assert self.open.pop() == tag


@pytest.mark.sampled(40)
@pytest.mark.parametrize("case", PLANNED, ids=lambda case: case.path.stem)
def test_a_summary_has_at_most_ten_lines(case: Case) -> None:
    """It names the job's sink and every table, or is cut at the width, and ends with the way to the whole plan."""
    job, sink = planned(case)
    lines = render(job, {"main": [sink]}, "summary").splitlines()
    assert len(lines) <= 10
    assert all(len(line) <= 110 for line in lines)
    assert f"  writes  {sink.name}: {sink.mode}" in lines[2]
    read = {step.value("table") for step in describe("main", [sink]).sinks[0].root.walk() if step.kind == "scan"}
    assert lines[1].endswith("…") or all(f"{table} (" in lines[1] for table in read)
    assert lines[-1].startswith("--full")


def test_a_summary_says_what_costs_most(tmp_path: Path) -> None:
    """State without a limit comes first, advice follows, and `--full` prints the tree instead."""
    columns = {"id": "INT NOT NULL", "k": "STRING"}
    tables = {name: {"mode": "retract", "primary_key": "id", "columns": columns} for name in ("a", "b")}
    tables["a"]["ttl"] = "1d"
    sql = "SELECT a.id, b.k FROM a JOIN b ON a.k = b.k"
    file = tmp_path / "job.yaml"
    sinks = {"s": {"mode": "retract", "sql": sql}}
    file.write_text(json.dumps({"job": "j", "tables": tables, "sinks": sinks}))
    told = CliRunner().invoke(main, ["explain", str(file)]).stdout.splitlines()
    labels = [line[2:10].strip() for line in told[1:-1]]
    assert labels == ["reads", "writes", "keeps", "", "moves", "advice"]
    assert "join_1: b, rows by join key" in told[3]
    assert "indefinitely" in told[3]
    assert "indefinitely" in told[4]
    assert told[4].endswith("… and 2 more")
    whole = CliRunner().invoke(main, ["explain", str(file), "--full"]).stdout
    assert whole.startswith("sink s: ")
    assert "└─ join_1" in whole
