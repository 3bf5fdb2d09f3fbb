"""The Helm chart's values: values.yaml, its schema and the README agree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.chart import CHART, JOB, NEEDS_HELM, helm
from tests.deploy.values_reference import README, readme, values

FOR_OTHERS = {"global", "enabled"}
"""Values that Helm passes down from a parent chart."""

OF_PODS = ("resources.", "podSecurityContext.", "securityContext.", "dashboards.labels.")
"""Parts of Kubernetes objects, which Kubernetes documents and checks."""

GROUPS = {"image", "serviceAccount", "service", "podDisruptionBudget", "networkPolicy"}
"""Groups whose values have comments, and which have no comment themselves."""


def test_the_readme_has_the_table_of_all_values() -> None:
    """`python -m tests.deploy.values_reference` writes the table."""
    assert README.read_text() == readme()


def test_every_value_has_a_comment_that_is_a_sentence() -> None:
    """Parts of Kubernetes objects and groups of values need no comment."""
    every = {path: comment for path, _, comment in values()}
    assert {path for path, comment in every.items() if not comment and not path.startswith(OF_PODS)} == GROUPS
    assert [path for path, comment in every.items() if comment and not comment.endswith((".", ")."))] == []


def test_schema_and_values_name_the_same() -> None:
    """Every value that has a default is in the schema, and every value in the schema has a default."""
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
    """The schema checks each switch and number that the chart itself reads."""
    value: Any = "of another type"
    for name in reversed(path.split(".")):
        value = {name: value}
    assert helm("template", "shop", values={"job": JOB} | value).returncode != 0


def _named(properties: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, schema in properties.items():
        yield f"{above}{name}"
        yield from _named(schema.get("properties", {}), f"{above}{name}.")
