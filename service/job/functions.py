"""Functions in Python that a job brings with it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from rowkind.avro.errors import SchemaError
from rowkind.avro.type import Field as Column
from rowkind.avro.type import Type
from rowkind.service.job.fields import Identifier, Section
from rowkind.service.python.function import ViewType

Target = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$")]


class FunctionView(Section):
    """One view of an aggregate, which is what it keeps of a group beside its accumulator: one of these three."""

    map: tuple[str, str] | None = None
    """The SQL types of its keys and values."""

    set: str | None = None
    """The SQL type of its elements."""

    list: str | None = None
    """The SQL type of its elements."""

    @model_validator(mode="after")
    def _one(self) -> FunctionView:
        if sum(each is not None for each in (self.map, self.set, self.list)) != 1:
            raise ValueError("expected one of map: [key, value], set: type and list: type")
        key = self.type("").key
        if not key.orderable:
            raise ValueError(f"{key.sql} cannot be a key")
        return self

    def type(self, name: str) -> ViewType:
        """The view under a name; no element is NULL."""
        if self.map is not None:
            return ViewType(name, "map", _type(self.map[0]).required, _type(self.map[1]).required)
        if self.set is not None:
            return ViewType(name, "set", _type(self.set).required, None)
        return ViewType(name, "list", Type.of("BIGINT NOT NULL"), _type(self.list or "").required)


class JobFunction(Section):
    """A function of the job's own, under its name in SQL. It is called with an Arrow array for each argument.

    A scalar function gives one array of the same length; a table function one list of structs per row, whose fields are
    the columns in `returns`. An aggregate is a class with a state for each group.
    """

    python: Target
    """Where it is in the job's `code`, as `module:name`."""

    kind: Literal["scalar", "table", "aggregate"] = "scalar"
    """Whether it gives a value for a row, several rows for a row, or a value for a group."""

    arguments: tuple[str, ...] = Field(min_length=1)
    """The SQL types of its arguments; what is given is cast to them as Spark does it, or refused."""

    returns: str | dict[str, str]
    """The SQL type of its result; of a table function its columns, name to SQL type."""

    deterministic: bool
    """Whether the same arguments always give the same. What is not is for rows that only come, since it may give
    another value when a row is taken back."""

    called_on_null: bool = False
    """Whether it is asked where an argument is NULL; else the result is NULL there."""

    version: str | None = None
    """What stands for the code in a checkpoint, which else may not be run by changed code."""

    accumulator: dict[Identifier, str] = Field(default_factory=dict)
    """The fields of an aggregate's state, name to SQL type."""

    views: dict[Identifier, FunctionView] = Field(default_factory=dict)
    """The lists, maps and sets that an aggregate keeps of a group beside that."""

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
        _ = self.result, self.state
        if self.kind != "aggregate" and (self.accumulator or self.views):
            raise ValueError("`accumulator` and `views` belong to a function of `kind: aggregate`")
        if twice := self.accumulator.keys() & self.views.keys():
            raise ValueError(f"{min(twice)!r} is a field of the accumulator and a view: rename one")
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
    def state(self) -> tuple[Column, ...]:
        """The fields of an aggregate's state."""
        return tuple(Column(name, _type(text)) for name, text in self.accumulator.items())

    @property
    def view_types(self) -> tuple[ViewType, ...]:
        """The views of an aggregate."""
        return tuple(view.type(name) for name, view in self.views.items())

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
