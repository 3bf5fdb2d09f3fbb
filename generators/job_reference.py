"""docs/job-file.md: the reference of the job file, from its schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generators.job_schema import ADDRESS, Schema, job_schema
from rowkind.service.job import duration

PAGE = Path(__file__).resolve().parents[1] / "docs" / "job-file.md"

_HEAD = """# The job file

This page is generated from the code that reads a job file: `python -m generators`.

A job is one YAML file. Only `job`, `tables` and `sinks` must be there; `rowkind check job.yaml` says what is wrong with
one, with the line. [A job](a-job.md) goes through one as a whole.

- Where a **length of time** is wanted, write `30d`, `12h`, `15m`, `90s`, `1500ms`, or several in a row as `1d 12h`; a
  bare number is milliseconds. Units are `ms`, `s`, `m` or `min`, `h`, `d`, `w`.
- Where an **amount of memory** is wanted, write `2g`, `1536m` or `2Gi`; a bare number is bytes, and every unit a power
  of 1024.
- `${NAME}` and `${NAME:-default}` in a value come from the environment, `${file:path}` from a file; `$${` is a plain
  `${`. In `kafka`, `registry` and `status` a value may also be `{file: path}`. What comes from outside there is never
  shown, unless the setting is one that holds no secret. Paths are seen from the job file.
- SQL types are `BOOLEAN`, `TINYINT`, `SMALLINT`, `INT`, `BIGINT`, `FLOAT`, `DOUBLE`, `DECIMAL(p,s)`, `STRING`,
  `VARCHAR(n)`, `CHAR(n)`, `BINARY`, `DATE`, `TIME(p)`, `TIMESTAMP(p)`, `TIMESTAMP_NTZ(p)`, `UUID`, `ARRAY<…>`,
  `MAP<STRING, …>` and `STRUCT<name: …>`, each with or without `NOT NULL`. A decimal has up to 38 digits.

**In an editor.** `rowkind schema > job.schema.json` writes a JSON Schema of this page. With the line below at the head
of a job file, an editor that has a YAML language server completes its keys, explains them, and marks what is wrong:

```yaml
# yaml-language-server: $schema=job.schema.json
```

The schema of the newest version is at <ADDRESS>, too. It knows what may stand where. What two
settings ask of each other, only `rowkind check` knows.
""".replace("ADDRESS", ADDRESS)

_PLACES = {
    "KafkaSettings": "kafka",
    "RegistrySettings": "registry",
    "StatusSettings": "status",
    "BatchSettings": "batch",
    "DeadLetterSettings": "dead_letters",
    "Table": "tables.<name>",
    "WatermarkSettings": "tables.<name>.watermark",
    "RowKindSettings": "row_kind",
    "From": "tables.<name>.start",
    "JobFunction": "functions.<name>",
    "FunctionView": "functions.<name>.views.<name>",
    "Sink": "sinks.<name>",
}
"""Where each section of the schema stands in a job file, in the order of the page."""


def page() -> str:
    """The page as it ought to be."""
    schema = job_schema()
    assert _PLACES.keys() == schema["$defs"].keys() - {"Reference"}, "every section has its place"
    return "\n".join([_HEAD, *_section("The whole", schema), *_sections(schema["$defs"])])


def _sections(defined: dict[str, Schema]) -> Iterator[str]:
    for name, place in _PLACES.items():
        yield from _section(f"`{place}`", defined[name])


def _section(title: str, section: Schema) -> Iterator[str]:
    yield f"## {title}\n\n{section['description']}\n\n| key | type | if left out | meaning |\n|---|---|---|---|"
    for name, value in section["properties"].items():
        left_out = "**must be there**" if name in section.get("required", ()) else _default(value)
        yield f"| `{name}` | {_type(value)} | {left_out} | {value['description']} |"
    if isinstance(rest := section["additionalProperties"], dict):
        yield f"| any other | {_type(rest)} | | handed on as it is |"
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
    """What may be written, in the words of the page."""
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
    """What a heading is linked by."""
    return "".join(each for each in title.lower() if each.isalnum() or each in "_-")
