"""The Helm chart's values: what values.yaml, its schema and the README say of them is the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.chart import CHART, JOB, NEEDS_HELM, helm
from tests.deploy.values_reference import README, readme, values

FOR_OTHERS = {"global", "enabled"}
"""What Helm hands down from a chart around this one."""

OF_PODS = ("resources.", "podSecurityContext.", "securityContext.", "dashboards.labels.")
"""What stands in the objects themselves, where Kubernetes tells of it and checks it."""

GROUPS = {"image", "serviceAccount", "service", "podDisruptionBudget", "networkPolicy"}
"""What has a word for each of its values and none for all."""


def test_the_readme_has_the_table_of_all_values() -> None:
    """`python -m tests.deploy.values_reference` writes it."""
    assert README.read_text() == readme()


def test_every_value_has_a_comment_that_is_a_sentence() -> None:
    """But for what Kubernetes tells of, and what only holds others."""
    every = {path: comment for path, _, comment in values()}
    assert {path for path, comment in every.items() if not comment and not path.startswith(OF_PODS)} == GROUPS
    assert [path for path, comment in every.items() if comment and not comment.endswith((".", ")."))] == []


def test_schema_and_values_name_the_same() -> None:
    """Whatever has a default may be set, and whatever may be set has a default."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    named = set(_named(schema["properties"])) - FOR_OTHERS
    listed = {path for path, _, _ in values() if not path.startswith(OF_PODS)}
    assert listed <= named
    assert named - listed == {
        *(f"affinity.{kind}" for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity")),
        *(f"serviceMonitor.basicAuth.{part}" for part in ("username", "password")),
    }


@NEEDS_HELM
@pytest.mark.parametrize(
    "path",
    [path for path, default, _ in values() if isinstance(default, bool | int) and not path.startswith(OF_PODS)],
)
def test_a_default_of_another_type_is_refused(path: str) -> None:
    """Each switch and number that the chart itself reads is checked by the schema."""
    value: Any = "of another type"
    for name in reversed(path.split(".")):
        value = {name: value}
    assert helm("template", "shop", values={"job": JOB} | value).returncode != 0


def _named(properties: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, schema in properties.items():
        yield f"{above}{name}"
        yield from _named(schema.get("properties", {}), f"{above}{name}.")
