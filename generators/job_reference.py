"""Generate docs/reference/job-file.md, the reference of the job file, from its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generators.job_schema import ADDRESS, Schema, job_schema
from rowkind.service.job import duration

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "job-file.md"

_HEAD = """# The job file

This page is generated from the code that reads a job file: `python -m generators`.

A job is one YAML file. Only `job`, `tables` and `sinks` are required. `rowkind check job.yaml` reports all errors in a
job file, each with its line. [A job, explained](../tutorials/a-job.md) goes through a complete example.

- A **length of time** is written `30d`, `12h`, `15m`, `90s` or `1500ms`, or combined as `1d 12h`. A bare number is
  milliseconds. Units are `ms`, `s`, `m` or `min`, `h`, `d`, `w`.
- An **amount of memory** is written `2g`, `1536m` or `2Gi`. A bare number is bytes, and every unit is a power of 1024.
- `${NAME}` and `${NAME:-default}` in a value are replaced from the environment, `${file:path}` from a file. `$${` is an
  escaped `${`. In `kafka`, `registry` and `status` a value may also be `{file: path}`. In these sections, values from
  the environment or from files are hidden in all output, unless the setting cannot contain a secret.
- **Paths** are relative to the job file.
- **SQL types** are `BOOLEAN`, `TINYINT`, `SMALLINT`, `INT`, `BIGINT`, `FLOAT`, `DOUBLE`, `DECIMAL(p,s)`, `STRING`,
  `VARCHAR(n)`, `CHAR(n)`, `BINARY`, `DATE`, `TIME(p)`, `TIMESTAMP(p)`, `TIMESTAMP_NTZ(p)`, `UUID`, `ARRAY<…>`,
  `MAP<STRING, …>` and `STRUCT<name: …>`, each with or without `NOT NULL`. A decimal has up to 38 digits.

**Editor support.** `rowkind schema > job.schema.json` writes a JSON Schema of this page. With the line below at the top
of a job file, an editor with a YAML language server completes and explains its keys, and marks errors:

```yaml
# yaml-language-server: $schema=job.schema.json
```

The schema of the newest version is also at <ADDRESS>. The schema checks each setting separately.
Only `rowkind check` checks how settings depend on each other.
""".replace("ADDRESS", ADDRESS)

_PLACES = {
    "KafkaSettings": "kafka",
    "RegistrySettings": "registry",
    "StatusSettings": "status",
    "BatchSettings": "batch",
    "DeadLetterSettings": "dead_letters",
    "Table": "tables.<name>",
    "GenerateSettings": "tables.<name>.generate",
    "GeneratedColumn": "tables.<name>.generate.columns.<name>",
    "WatermarkSettings": "tables.<name>.watermark",
    "RowKindSettings": "row_kind",
    "From": "tables.<name>.start",
    "JobFunction": "functions.<name>",
    "FunctionView": "functions.<name>.views.<name>",
    "Sink": "sinks.<name>",
}
"""The place of each section of the schema in a job file, in the order of the page."""


def page() -> str:
    """Return the current text of the page."""
    schema = job_schema()
    assert _PLACES.keys() == schema["$defs"].keys() - {"Reference"}, "every section has its place"
    return "\n".join([_HEAD, *_section("Top level", schema), *_sections(schema["$defs"])])


def _sections(defined: dict[str, Schema]) -> Iterator[str]:
    for name, place in _PLACES.items():
        yield from _section(f"`{place}`", defined[name])


def _section(title: str, section: Schema) -> Iterator[str]:
    yield f"## {title}\n\n{section['description']}\n\n| key | type | default | meaning |\n|---|---|---|---|"
    for name, value in section["properties"].items():
        left_out = "**required**" if name in section.get("required", ()) else _default(value)
        yield f"| `{name}` | {_type(value)} | {left_out} | {value['description']} |"
    if isinstance(rest := section["additionalProperties"], dict):
        yield f"| any other | {_type(rest)} | | passed on unchanged |"
    yield ""


def _default(value: Schema) -> str:
    if "default" not in value:
        return ""
    default = value["default"]
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if _type(value).startswith("length of time"):
        return f"`{duration.show(default) if default else '0s'}`"
    return f"`{default}`"


def _type(schema: Schema) -> str:
    """Return the type as the page shows it."""
    match schema:
        case {"title": str(title)}:
            return title
        case {"enum": [*words]}:
            return ", ".join(f"`{word}`" for word in words)
        case {"$ref": str(ref)}:
            place = _PLACES.get(ref.rpartition("/")[2])
            return "" if place is None else f"[`{place}`](#{_anchor(place)})"
        case {"anyOf": [*branches]}:
            said = [_type(each) for each in branches]
            return " or ".join(dict.fromkeys(each for each in said if each))
        case {"type": "array", "prefixItems": [*items]}:
            return f"list of {len(items)} texts"
        case {"type": "array"}:
            return "list of texts"
        case {"type": "object", "patternProperties": dict(inside)} | {"type": "object", "additionalProperties": inside}:
            (of,) = inside.values() if "patternProperties" in schema else (inside,)
            return f"{'number' if of.get('type') == 'integer' else 'name'} to {_type(of)}"
        case _:
            return _plain(schema)


def _plain(schema: Schema) -> str:
    match schema["type"]:
        case "null":
            return ""
        case "integer":
            return f"whole number{_bounds(schema)}"
        case "number":
            return f"number{_bounds(schema)}"
        case "boolean":
            return "`true`, `false`"
        case _:
            return "text"


def _bounds(schema: dict[str, Any]) -> str:
    above, most = schema.get("exclusiveMinimum"), schema.get("maximum")
    said = [] if above is None else [f"above {above}"]
    said += [] if most is None else [f"at most {most}"]
    return f" {', '.join(said)}" if said else ""


def _anchor(title: str) -> str:
    """Return the anchor of a heading."""
    return "".join(each for each in title.lower() if each.isalnum() or each in "_-")
