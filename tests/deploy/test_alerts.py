"""The alerts: their texts, and, tested by `promtool`, when each of them fires and when it does not."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.deploy import prometheus

CASES = Path(__file__).with_name("alerts.yaml")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "alerts.md"
RULES: list[dict[str, Any]] = [
    rule for group in YAML(typ="safe").load(prometheus.RULES)["groups"] for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_says_what_happened_and_what_to_do(rule: dict[str, Any]) -> None:
    """Each has a severity, a summary sentence, a description of what to do, and a link to its documentation."""
    assert rule["labels"]["severity"] in {"critical", "warning"}
    said = rule["annotations"]
    assert said.keys() == {"summary", "description", "runbook_url"}
    assert said["summary"].endswith(".")
    assert said["description"].endswith(".")
    assert said["runbook_url"].endswith(f"/docs/reference/alerts.md#{rule['alert'].lower()}")


def test_the_page_has_a_section_for_each_alert() -> None:
    """A section has a meaning, what to check and an action, and the table has a line with the severity."""
    page = PAGE.read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    assert list(sections) == NAMES
    for rule in RULES:
        section = sections[rule["alert"]]
        assert re.findall(r"^\*\*(\w+)", section, re.MULTILINE) == ["Meaning", "Check", "Action"], rule["alert"]
        row = f"| [{rule['alert']}](#{rule['alert'].lower()}) | {rule['labels']['severity']} |"
        assert row in page, row


@pytest.mark.parametrize("alert", NAMES)
def test_an_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(alert: str) -> None:
    """The name of a case says which alert it tests, and whether the alert fires."""
    cases = {each["name"]: each["promql_expr_test"][0] for each in YAML(typ="safe").load(CASES)["tests"]}
    own = {name: case for name, case in cases.items() if name.startswith(f"{alert} ")}
    assert all(f'alertname="{alert}"' in case["expr"] for case in own.values())
    assert {bool(case["exp_samples"]) for case in own.values()} == {True, False}
    assert all(bool(case["exp_samples"]) == (" fires: " in name) for name, case in own.items())


def test_every_case_is_as_it_says() -> None:
    """Prometheus' own tester evaluates the rules over the series of each case."""
    prometheus.require()
    done = subprocess.run(
        ["promtool", "test", "rules", CASES.name], cwd=CASES.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_configuration_that_is_shipped_is_one(tmp_path: Path) -> None:
    """Prometheus' own checker accepts the configuration and the rules, and also the tests' faster rules."""
    prometheus.require()
    hastened = tmp_path / "rules.yaml"
    hastened.write_text(prometheus.hastened(prometheus.RULES.read_text()))
    config = prometheus.RULES.with_name("prometheus.yaml")
    for command in (["check", "config", str(config)], ["check", "rules", str(hastened)]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
