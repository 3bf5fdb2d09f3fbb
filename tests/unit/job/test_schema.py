"""The reference and the JSON schema of the job file: both are current, and the schema agrees with the loader."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from ruamel.yaml import YAML

from generators.job_reference import PAGE, page
from generators.job_schema import PATH, job_schema, text
from rowkind.service.cli import main
from rowkind.service.job.errors import JobError
from rowkind.service.job.load import load, loaded
from rowkind.service.job.model import Job
from tests.unit.job import test_job_errors
from tests.unit.job.test_job_errors import GOOD, changed

ROOT = Path(__file__).parents[3]
VALIDATOR = Draft202012Validator(job_schema())
JOBS = [*sorted((ROOT / "examples").glob("*/job.yaml")), *sorted((ROOT / "tests").rglob("job.yaml"))]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = [
    pytest.param(block, id=f"{path.name}-{number}")
    for path in PAGES
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", path.read_text(), re.DOTALL))
]
WHOLE = {"job", "tables", "sinks"}


def document(text_: str) -> Any:
    """Parse a YAML document as an editor does: keys and times are text."""
    return as_json(YAML(typ="safe", pure=True).load(text_))


def as_json(value: Any) -> Any:
    """Return a YAML value as a JSON value."""
    match value:
        case dict():
            return {str(name): as_json(each) for name, each in value.items()}
        case list():
            return [as_json(each) for each in value]
        case date():
            return value.isoformat()
    return value


def complaints(of: Any) -> list[str]:
    """Return the errors that the schema reports for a document."""
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(of)]


def test_the_reference_is_up_to_date() -> None:
    """The reference page equals the output of `python -m generators`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_published_schema_is_up_to_date() -> None:
    """The schema in the package is valid, equals the model's, and is printed by `rowkind schema`."""
    Draft202012Validator.check_schema(job_schema())
    assert PATH.read_text(encoding="utf-8") == text()
    assert CliRunner().invoke(main, ["schema"], catch_exceptions=False).stdout == text()


@pytest.mark.parametrize("of", ["properties", "$defs"])
def test_every_key_has_a_meaning(of: str) -> None:
    """Every field of the model has a description that ends as a sentence."""
    sections = [job_schema()] if of == "properties" else list(job_schema()["$defs"].values())
    for section in sections:
        for name, value in section.get("properties", {}).items():
            assert value["description"].endswith("."), name


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.parent.name)
def test_every_job_of_the_tree_is_valid(job: Path) -> None:
    """The jobs of the examples and of the tests are valid by the schema."""
    assert not complaints(document(job.read_text()))


@pytest.mark.parametrize("block", SHOWN)
def test_what_documents_show_of_a_job_is_valid(block: str) -> None:
    """Every job or part of a job in the docs is valid, once the missing parts are added."""
    shown = document(block)
    if not isinstance(shown, dict) or not shown.keys() & job_schema()["properties"].keys():
        return
    assert not complaints(document(GOOD) | shown)


def test_what_the_documents_show_as_whole_jobs_loads(tmp_path: Path) -> None:
    """The docs contain more than one complete job, and the loader accepts all of them."""
    whole = [each.values[0] for each in SHOWN if (document(str(each.values[0])) or {}).keys() >= WHOLE]
    assert len(whole) > 1
    for block in whole:
        loaded(str(block), tmp_path / "job.yaml", {})


SHORT_AND_LONG = """
job: ${NAME:-short}
kafka: {bootstrap.servers: localhost:9092, sasl.password: {file: password}, enable.idempotence: true, retries: 3}
registry: {url: "http://localhost", basic.auth.user.info: me}
status: {user: me, password: "${WORD:-word}"}
checkpoint: /var/lib/rowkind
ttl: 1d 12h
parallelism: ${N:-2}
shards: 8
memory: 4Gi
on_error: null
atomic: ${ATOMIC:-false}
dead_letters: {topic: letters, max_ratio: 0.5}
tables:
  one:
    mode: append
    columns: {id: BIGINT, at: TIMESTAMP}
    watermark: at
    row_kind: ordinal
    start: latest
  two:
    mode: retract
    columns: {id: BIGINT, at: TIMESTAMP}
    primary_key: id
    ttl: 5s
    watermark: {column: at, delay: INTERVAL '5' SECOND, idle: 1m, allowed_lateness: 0}
    row_kind: {header: kind, values: {new: +I, gone: -D}, missing: fail}
    start: {timestamp: 2026-01-31T12:00:00Z}
  three: {mode: upsert, primary_key: [id], columns: {id: BIGINT}, start: {offsets: {0: 5}}}
views: {both: SELECT id FROM one}
sinks:
  out: {mode: retract, key: id, partitions: 4, sql: SELECT id FROM one}
"""


def test_every_way_to_write_a_value_is_known(tmp_path: Path) -> None:
    """The loader and the schema accept short forms, references, lengths of time and amounts of memory."""
    (tmp_path / "password").write_text("word")
    loaded(SHORT_AND_LONG, tmp_path / "job.yaml", {})
    assert not complaints(document(SHORT_AND_LONG))


REFUSED = [
    changed("checkpoint: /tmp/checkpoint", "parallelism: 2000"),
    changed("checkpoint: /tmp/checkpoint", "atomic: perhaps"),
    changed("checkpoint: /tmp/checkpoint", "ttl: 30 days"),
    changed("checkpoint: /tmp/checkpoint", "ttl: 30"),
    changed("checkpoint: /tmp/checkpoint", "memory: 2 GByte"),
    changed("checkpoint: /tmp/checkpoint", "status: {user: me}"),
    changed("checkpoint: /tmp/checkpoint", "status: {name: me}"),
    changed("checkpoint: /tmp/checkpoint", "views: {1st: SELECT 1}"),
    changed("checkpoint: /tmp/checkpoint", "functions: {f: {python: here, arguments: [INT], returns: INT}}"),
    changed('{bootstrap.servers: "localhost:9092"}', "{client.id: x}"),
    changed("{folder: schemas}", "{folder: schemas, url: http://localhost}"),
    changed("    primary_key: [order_id]", "    primary_key: {order_id: 1}"),
    changed("    primary_key: [order_id]", "    start: {at: noon}"),
    changed("    primary_key: [order_id]", "    start: never"),
    changed("    primary_key: [order_id]", "    row_kind: morse"),
    changed("    primary_key: [order_id]", "    watermark: {delay: 5s}"),
    changed("    primary_key: [order_id]", "    watermark: {column: at, idle: soon}"),
    changed("    sql: SELECT order_id FROM orders", "    sql: [SELECT]"),
    changed("    sql: SELECT order_id FROM orders", "    delivery: twice"),
    GOOD.partition("sinks:")[0],
    "job: shop\ntables: []\nsinks: {}\n",
]
_NAMED = test_job_errors.test_a_problem_is_named_with_line_field_and_what_was_expected.pytestmark[0].args[1]
NAMED = [changed(old, new) for old, new, _ in _NAMED]
"""The jobs that the tests of the loader's messages expect to be refused."""


def by_shape(job: str) -> bool:
    """Return whether pydantic alone reports an error of another type than `value_error`."""
    try:
        Job.model_validate(YAML(typ="safe", pure=True).load(job))
    except ValidationError as error:
        return any(each["type"] != "value_error" for each in error.errors())
    return False


@pytest.mark.parametrize("job", [*REFUSED, *filter(by_shape, NAMED)])
def test_what_the_loader_refuses_by_shape_the_schema_refuses(job: str, tmp_path: Path) -> None:
    """The schema also refuses unknown and missing keys, values of the wrong type and unknown words."""
    with pytest.raises(JobError):
        loaded(job, tmp_path / "job.yaml", {})
    assert complaints(document(job))


def test_the_examples_load() -> None:
    """Every job of the tree that is valid by the schema also loads."""
    for job in JOBS:
        load(job, {})
