"""Functions in Python that a job brings with it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from rowkind.avro.errors import SchemaError
from rowkind.avro.type import Type
from rowkind.service.job.fields import Section

Target = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$")]


class JobFunction(Section):
    """A function, `module:name` in the job's `code`, called with an Arrow array for each argument.

    A scalar function gives one array of the same length; a table function one list of structs per row, whose fields are
    the columns in `returns`. A function that is not `deterministic` may give another value when a row is taken back,
    and so is for rows that only come. Unless it is `called_on_null` the result is NULL where an argument is. `version`
    stands for the code in a checkpoint, which else may not be run by changed code.
    """

    python: Target
    kind: Literal["scalar", "table"] = "scalar"
    arguments: tuple[str, ...] = Field(min_length=1)
    returns: str | dict[str, str]
    deterministic: bool
    called_on_null: bool = False
    version: str | None = None

    @field_validator("arguments")
    @classmethod
    def _types(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            _type(each)
        return value

    @model_validator(mode="after")
    def _whole(self) -> JobFunction:
        if (self.kind == "table") != isinstance(self.returns, dict):
            raise ValueError(
                "a table function `returns` its columns, {name: type, …}"
                if self.kind == "table"
                else f"a {self.kind} function `returns` one type; one that returns columns is of `kind: table`"
            )
        _ = self.result
        return self

    @property
    def takes(self) -> tuple[Type, ...]:
        """The types of the arguments."""
        return tuple(_type(each).as_nullable() for each in self.arguments)

    @property
    def result(self) -> Type:
        """The type of what it gives for a row."""
        if isinstance(self.returns, str):
            return _type(self.returns)
        fields = ", ".join(f"{name}: {type_}" for name, type_ in self.returns.items())
        return _type(f"ARRAY<STRUCT<{fields}> NOT NULL>")

    @property
    def module(self) -> str:
        """The module that it is in."""
        return self.python.partition(":")[0]

    @property
    def attribute(self) -> str:
        """What it is called there."""
        return self.python.partition(":")[2]


def _type(text: str) -> Type:
    try:
        return Type.of(text)
    except SchemaError as error:
        raise ValueError(str(error)) from None
