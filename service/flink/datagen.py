"""Translate a table with Flink's datagen connector to a generated table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rowkind.service.flink.connectors import length_of_time
from rowkind.service.flink.script import NotCarriedOver, Script
from rowkind.service.flink.tables import CreateTable, FlinkOption, Options

DATAGEN = "datagen"

_FIELD = re.compile(r"fields\.([^.]+)\.(kind|min|max|max-past|length|var-len|null-rate|start|end)")
_LEFT_OUT = ("connector", "scan.parallelism")
_RANGES: Mapping[str, int] = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
"""The numbers of bits of whole numbers. Without a range, Flink draws from all numbers of the type."""
_TEXT = 100
"""The length of texts in Flink if none is given."""


def uses_datagen(table: CreateTable) -> bool:
    """Return whether a table has the connector datagen."""
    connector = table.options.get("connector")
    return connector is not None and connector.value == DATAGEN


def generate(script: Script, table: CreateTable, options: Options) -> dict[str, Any]:
    """Return the `generate` section of a table. Adds a note for each option that a job cannot express."""
    made: dict[str, Any] = {}
    columns: dict[str, dict[str, Any]] = {}
    for name, option in options.items():
        try:
            if name in ("rows-per-second", "number-of-rows"):
                made[name.replace("-", "_")] = _number(name, option)
            elif (found := _FIELD.fullmatch(name)) is not None and found[1] in table.record:
                value = _value(found[2], option)
                if value is not None:
                    columns.setdefault(found[1], {})[found[2].replace("-", "_")] = value
            elif name not in _LEFT_OUT:
                script.note(option.at, f"{table.name}: the option {name} of datagen is not supported")
        except NotCarriedOver as reason:
            script.note(reason.at, f"{table.name}: {reason.text}")
    for name, type_ in table.record.items():
        plain, own = type_.removesuffix(" NOT NULL"), columns.get(name, {})
        if own.get("kind") == "sequence":
            continue
        if plain in _RANGES and not own.keys() & {"min", "max"}:
            columns[name] = {"min": -(2 ** _RANGES[plain]), "max": 2 ** _RANGES[plain] - 1, **own}
        elif plain == "STRING" and "length" not in own:
            columns[name] = {"length": _TEXT, **own}
    columns = {name: columns[name] for name in table.record if name in columns}
    return made | ({"columns": columns} if columns else {})


def _value(setting: str, option: FlinkOption) -> Any:
    """Return the value of a field's option, None if it is the default. Raises NotCarriedOver."""
    match setting:
        case "kind" if option.value in ("sequence", "random"):
            return option.value if option.value == "sequence" else None
        case "var-len":
            return option.value.lower() == "true"
        case "max-past":
            return length_of_time(option, setting)
        case _:
            return _number(setting, option)


def _number(name: str, option: FlinkOption) -> float:
    try:
        return int(option.value) if re.fullmatch(r"[-+]?\d+", option.value) else float(option.value)
    except ValueError:
        raise NotCarriedOver(option.at, f"{name}: {option.value!r} is not a number") from None
