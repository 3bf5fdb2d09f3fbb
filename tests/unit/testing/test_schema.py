"""`rowkind schema --tests`: the JSON Schema of files of tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from rowkind.service.cli import main
from rowkind.service.testing import suite_file

ROOT = Path(__file__).parents[3]
TUTORIAL = (ROOT / "docs" / "tutorials" / "test-your-sql.md").read_text()
TEXTS = {
    **{each.parent.name: each.read_text() for each in sorted((ROOT / "examples").glob("*/*.tests.yaml"))},
    **dict(re.findall(r'^```yaml title="([^"]+\.tests\.yaml)"\n(.*?)^```$', TUTORIAL, re.MULTILINE | re.DOTALL)),
}


def schema() -> Any:
    """Return the schema that the command prints."""
    return json.loads(CliRunner().invoke(main, ["schema", "--tests"], prog_name="rowkind").output)


def errors(text: str) -> list[str]:
    """Return what the schema finds wrong in a text. Times are text for an editor."""
    document = YAML(typ="safe").load(text)
    return [each.message for each in jsonschema.Draft202012Validator(schema()).iter_errors(json.loads(_json(document)))]


def _json(document: Any) -> str:
    return json.dumps(document, default=str)


@pytest.mark.parametrize("name", TEXTS)
def test_the_schema_accepts_the_tests_of_examples_and_docs(name: str) -> None:
    """No file of the examples and the tutorial has an error."""
    assert not errors(TEXTS[name])


@pytest.mark.parametrize(
    "test", ["{given: {}}", "{name: t, expects: []}", "{name: t, cut: 0}", "{name: t, steps: [{name: u}]}", "[]"]
)
def test_the_schema_rejects_mistakes(test: str) -> None:
    """A missing name, unknown settings and wrong values are errors."""
    assert errors(f"tests: [{test}]")


def test_the_schema_has_all_settings() -> None:
    """The settings in the schema are those that the loader knows, and the reference describes each."""
    parts = schema()["$defs"]
    assert set(parts["Step"]["properties"]) == set(suite_file._STEP)
    assert set(parts["Test"]["properties"]) == {*suite_file._TEST, *suite_file._STEP}
    page = (ROOT / "docs" / "reference" / "sql-tests.md").read_text()
    assert not [name for name in parts["Test"]["properties"] if f"| `{name}` |" not in page]
