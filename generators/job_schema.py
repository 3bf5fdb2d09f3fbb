"""Generate service/job/job.schema.json, the JSON Schema of a job file for editors, from the model of the file.

The schema has names, types, allowed words and required keys. Only the model checks dependencies between settings, and
between a table's columns and its primary key. `rowkind check` is therefore authoritative.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from rowkind.avro.registry import ANSWER_SECONDS
from rowkind.service.job.functions import FunctionView, JobFunction
from rowkind.service.job.generation import GeneratedColumn, GenerateSettings
from rowkind.service.job.model import BatchSettings, DeadLetterSettings, Job
from rowkind.service.job.sink import OF_TOPICLESS, Sink
from rowkind.service.job.table import From, RowKindSettings, Table, WatermarkSettings
from rowkind.service.physical.row_kind import PRESETS

Schema = dict[str, Any]

PATH = Path(__file__).resolve().parents[1] / "service" / "job" / "job.schema.json"
ADDRESS = f"https://raw.githubusercontent.com/rowkind/rowkind/main/service/job/{PATH.name}"

_MODELS: tuple[type[BaseModel], ...] = (
    Job,
    BatchSettings,
    DeadLetterSettings,
    Table,
    GenerateSettings,
    GeneratedColumn,
    WatermarkSettings,
    RowKindSettings,
    From,
    Sink,
    JobFunction,
    FunctionView,
)

_REFERENCE: Schema = {"$ref": "#/$defs/Reference"}

_SETTING: Schema = {
    "title": "text",
    "anyOf": [
        {"type": ["string", "number", "boolean"]},
        {
            "type": "object",
            "properties": {"file": {"type": "string"}},
            "required": ["file"],
            "additionalProperties": False,
        },
    ],
}
"""The value of a setting of Kafka, a registry or the status port. It may be in a file, as secrets are."""

_OWN: Mapping[str, Schema] = {
    "Reference": {
        "description": "A reference to an environment variable or to the content of a file.",
        "type": "string",
        "pattern": r"\$\{[^}]*\}",
    },
    "KafkaSettings": {
        "description": "librdkafka's settings under their own names, including TLS and SASL, for all clients.",
        "type": "object",
        "properties": {
            "bootstrap.servers": {**_SETTING, "description": "Kafka's address: `host:port`, several with commas."},
            "outage": {
                **_SETTING,
                "title": "length of time",
                "description": "How long the job waits for brokers or a registry that become unavailable. If omitted, "
                "indefinitely.",
            },
        },
        "required": ["bootstrap.servers"],
        "additionalProperties": _SETTING,
    },
    "RegistrySettings": {
        "description": "Where schemas are: set either `url` or `folder`.",
        "type": "object",
        "properties": {
            "url": {
                **_SETTING,
                "description": "The address of a registry with Confluent's API. Further settings of Confluent's client "
                "are allowed with it, such as `basic.auth.user.info`.",
            },
            "timeout": {
                **_SETTING,
                "title": "seconds",
                "description": f"The time limit for one response from the registry, including retries. If omitted, "
                f"{ANSWER_SECONDS:g} s. After the timeout, a running job asks again.",
            },
            "folder": {**_SETTING, "description": "A folder of .avsc files. The path is relative to the job file."},
        },
        "oneOf": [{"required": ["url"]}, {"required": ["folder"]}],
        "if": {"required": ["folder"]},
        "then": {"maxProperties": 1},
        "additionalProperties": _SETTING,
    },
    "StatusSettings": {
        "description": "Access to the status port. Without this section, the port requires no login.",
        "type": "object",
        "properties": {
            "certificate": {**_SETTING, "description": "The TLS certificate, as a path relative to the job file."},
            "key": {**_SETTING, "description": "The key of the certificate, as a path relative to the job file."},
            "user": {**_SETTING, "description": "The user name of the login."},
            "password": {**_SETTING, "description": "The password of the login."},
        },
        "dependentRequired": {
            "certificate": ["key"],
            "key": ["certificate"],
            "user": ["password"],
            "password": ["user"],
        },
        "additionalProperties": False,
    },
}
_SETTINGS = {"kafka": "KafkaSettings", "registry": "RegistrySettings", "status": "StatusSettings"}

_SHORT: Mapping[str, Schema] = {
    RowKindSettings.__name__: {"enum": sorted(PRESETS)},
    From.__name__: {"enum": ["earliest", "latest"]},
    WatermarkSettings.__name__: {"type": "string"},
    GeneratedColumn.__name__: {"type": "array", "items": {"type": "string"}},
}
"""The short forms that may replace a whole section."""


class _Plain(GenerateJsonSchema):
    """Generates schemas without titles that repeat the name."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's interface
        """Return False: no title is generated."""
        return False


def job_schema() -> Schema:
    """Return the schema, generated from the model."""
    made = Job.model_json_schema(schema_generator=_Plain)
    sections = {Job.__name__: made, **made.pop("$defs")}
    for model in _MODELS:
        section = sections[model.__name__]
        del section["title"]
        meanings = _meanings(model)
        for name, field in model.model_fields.items():
            written = field.alias or name
            found = _written(section["properties"][written])
            if found.get("default") in (None, "", [], {}) or "$ref" in found:
                found.pop("default", None)
            section["properties"][written] = {**found, "description": meanings[name]}
    sections.pop(Job.__name__)
    properties = made["properties"]
    for name, section in _SETTINGS.items():
        meaning = properties[name]["description"]
        properties[name] = {"anyOf": [{"$ref": f"#/$defs/{section}"}, {"type": "null"}], "description": meaning}
    # YAML parses the word null as None.
    for words in (properties["on_error"], sections[Table.__name__]["properties"]["on_bad_update"]):
        words["anyOf"].append({"type": "null"})
    sink = sections[Sink.__name__]
    sink["required"].remove("mode")
    sink |= {
        "if": {"properties": {"to": {"enum": ["print", "blackhole"]}}, "required": ["to"]},
        "then": {"propertyNames": {"enum": sorted(OF_TOPICLESS)}},
        "else": {"required": ["mode"]},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ADDRESS,
        "title": "A job of Rowkind",
        **made,
        "$defs": {**dict(sorted(sections.items())), **_OWN},
    }


def text() -> str:
    """Return the current text of the file."""
    return json.dumps(job_schema(), indent=2, ensure_ascii=False) + "\n"


def _written(schema: Schema) -> Schema:
    """Return the schema of a value as written in a job file: with references, short forms, and numbers as text."""
    match schema:
        case {"$ref": str(ref)}:
            short = _SHORT.get(ref.rpartition("/")[2])
            return schema if short is None else {"anyOf": [short, {"$ref": ref}]}
        case {"anyOf": [*branches]}:
            inner = [_written(each) for each in branches]
            flat = [each for branch in inner for each in (branch["anyOf"] if [*branch] == ["anyOf"] else [branch])]
            if "title" in schema and _REFERENCE not in flat:
                flat.append(_REFERENCE)
            return {**schema, "anyOf": [each for place, each in enumerate(flat) if each not in flat[:place]]}
        case {"type": "object"}:
            closed = {"additionalProperties": False} if "patternProperties" in schema else {}
            return {**schema, **{part: _inside(part, value) for part, value in schema.items()}, **closed}
        case {"type": "array"} | {"type": "null"}:
            return schema
        case {"type": "string"} if not schema.keys() & {"enum", "pattern", "format"}:
            return {**schema, "type": ["string", "number"]}
        case _:
            about = {name: schema[name] for name in ("default",) if name in schema}
            plain = {name: value for name, value in schema.items() if name not in about}
            return {"anyOf": [plain, _REFERENCE], **about}


def _inside(part: str, value: Any) -> Any:
    """Apply `_written` to one part of the schema of a mapping."""
    if part == "additionalProperties" and isinstance(value, dict):
        return _written(value)
    if part == "patternProperties":
        return {pattern: _written(each) for pattern, each in value.items()}
    return value


def _meanings(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the string below each field of a section."""
    return dict(_below(ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]))


def _below(section: ast.stmt) -> Iterator[tuple[str, str]]:
    assert isinstance(section, ast.ClassDef)
    for field, below in zip(section.body, section.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                yield name, " ".join(meaning.split())
