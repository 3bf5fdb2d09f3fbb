"""Types of the fields of a job file: names, lengths of time, amounts of memory, settings."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from rowkind.service.job import duration, size
from rowkind.service.job.substitution import Settings

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
ResourceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
TopicName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", max_length=249)]


def _one_or_more(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _settings(value: Any, check: ValidatorFunctionWrapHandler) -> Settings:
    if isinstance(value, dict):
        value = {str(name): str(entry).lower() if isinstance(entry, bool) else entry for name, entry in value.items()}
    checked = check(value)
    # Pydantic returns plain strings, so restore the values that are a Secret.
    return Settings({name: value[name] if isinstance(value[name], str) else text for name, text in checked.items()})


def _written(parse: Callable[[str], int]) -> BeforeValidator:
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def _shown(title: str, *forms: dict[str, Any]) -> WithJsonSchema:
    """Return the accepted forms of a value, for the JSON Schema (`generators/job_schema.py`)."""
    return WithJsonSchema({"title": title, "anyOf": list(forms)})


LengthOfTime = _shown("length of time", {"const": 0}, {"type": "string", "pattern": duration.PATTERN})
Moment = Annotated[
    datetime,
    _shown(
        "time such as `2026-01-31T12:00:00Z`",
        {"type": "integer"},
        {"type": "string", "pattern": r"^\s*\d{4}-\d{2}-\d{2}([Tt ].*)?$"},
    ),
]
ColumnNames = Annotated[
    tuple[str, ...],
    BeforeValidator(_one_or_more),
    _shown("one or more columns", {"type": "string"}, {"type": "array", "items": {"type": "string"}}),
]
Duration = Annotated[
    int,
    BeforeValidator(lambda value: duration.parse(str(value)) if type(value) in (str, int) else value),
    Field(gt=0),
    _shown("length of time", {"type": "string", "pattern": duration.PATTERN}),
]
"""Milliseconds, written as a length of time."""

Size = Annotated[
    int,
    _written(size.parse),
    _shown("amount of memory", {"type": "integer"}, {"type": "string", "pattern": size.PATTERN}),
]
"""Bytes, written as an amount of memory."""

SettingsField = Annotated[dict[str, str], WrapValidator(_settings)]


class Section(BaseModel):
    """A section of a job file. Unknown keys are refused, and instances are immutable.

    The string below a field describes it in the reference of the job file and in the JSON Schema.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


def either(words: Any) -> str:
    """Join words for a message: `a, b or c`."""
    *others, last = cast("list[str]", list(words))
    return f"{', '.join(others)} or {last}" if others else last
