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
    """One view of an aggregate: `{map: [key, value]}`, `{set: type}` or `{list: type}`, of SQL types."""

    map: tuple[str, str] | None = None
    set: str | None = None
    list: str | None = None

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
    """A function, `module:name` in the job's `code`, called with an Arrow array for each argument.

    A scalar function gives one array of the same length; a table function one list of structs per row, whose fields are
    the columns in `returns`. A function that is not `deterministic` may give another value when a row is taken back,
    and so is for rows that only come. Unless it is `called_on_null` the result is NULL where an argument is. `version`
    stands for the code in a checkpoint, which else may not be run by changed code.

    An aggregate is a class (`service.python.aggregate`): `accumulator` are the fields of its state, `views` the lists,
    maps and sets that it keeps of a group beside that.
    """

    python: Target
    kind: Literal["scalar", "table", "aggregate"] = "scalar"
    arguments: tuple[str, ...] = Field(min_length=1)
    returns: str | dict[str, str]
    deterministic: bool
    called_on_null: bool = False
    version: str | None = None
    accumulator: dict[Identifier, str] = Field(default_factory=dict)
    views: dict[Identifier, FunctionView] = Field(default_factory=dict)

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
