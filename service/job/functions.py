"""The Python functions of a job, as its file declares them."""

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
    """A view of an aggregate: a collection stored per group, in addition to the accumulator. Set exactly one key."""

    map: tuple[str, str] | None = None
    """The SQL types of the keys and values."""

    set: str | None = None
    """The SQL type of the elements."""

    list: str | None = None
    """The SQL type of the elements."""

    @model_validator(mode="after")
    def _one(self) -> FunctionView:
        if sum(each is not None for each in (self.map, self.set, self.list)) != 1:
            raise ValueError("expected one of map: [key, value], set: type or list: type")
        key = self.type("").key
        if not key.orderable:
            raise ValueError(f"{key.sql} cannot be a key")
        return self

    def type(self, name: str) -> ViewType:
        """Return the view with this name. Its keys, values and elements are NOT NULL."""
        if self.map is not None:
            return ViewType(name, "map", _type(self.map[0]).required, _type(self.map[1]).required)
        if self.set is not None:
            return ViewType(name, "set", _type(self.set).required, None)
        return ViewType(name, "list", Type.of("BIGINT NOT NULL"), _type(self.list or "").required)


class JobFunction(Section):
    """A Python function of the job. The key is its name in SQL. It is called with one Arrow array per argument.

    A scalar function returns one array of the same length. A table function returns a list of structs for each row; the
    structs' fields are the columns in `returns`. An aggregate is a class with a state for each group.
    """

    python: Target
    """The location of the function in the job's `code`, as `module:name`."""

    kind: Literal["scalar", "table", "aggregate"] = "scalar"
    """`scalar`: one value per row. `table`: several rows per row. `aggregate`: one value per group."""

    arguments: tuple[str, ...] = Field(min_length=1)
    """The SQL types of the arguments. Values of other types are cast as in Spark, or refused."""

    returns: str | dict[str, str]
    """The SQL type of the result. For a table function, its columns and their SQL types."""

    deterministic: bool
    """Whether equal arguments always give equal results. A function that is not deterministic is allowed only on rows
    that are never retracted, because it may return a different value at the retraction."""

    called_on_null: bool = False
    """Whether the function is called if an argument is NULL. Otherwise the result is NULL."""

    version: str | None = None
    """The version of the code, which the checkpoint stores. A new version counts as a changed query. If omitted, a
    digest of `code` is used, so that any change to the code counts."""

    accumulator: dict[Identifier, str] = Field(default_factory=dict)
    """The fields of an aggregate's state, and their SQL types."""

    views: dict[Identifier, FunctionView] = Field(default_factory=dict)
    """The lists, maps and sets that an aggregate keeps per group in addition to its accumulator."""

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
                "a table function must have its columns in `returns`, as {name: type, …}"
                if self.kind == "table"
                else (
                    f"a {self.kind} function must have one type in `returns`; a function "
                    f"that returns columns needs `kind: table`"
                )
            )
        _ = self.result, self.state
        if self.kind != "aggregate" and (self.accumulator or self.views):
            raise ValueError("`accumulator` and `views` are only for a function with `kind: aggregate`")
        if twice := self.accumulator.keys() & self.views.keys():
            raise ValueError(f"{min(twice)!r} is both a field of the accumulator and a view: rename one")
        return self

    @property
    def takes(self) -> tuple[Type, ...]:
        """The types of the arguments."""
        return tuple(_type(each).as_nullable() for each in self.arguments)

    @property
    def result(self) -> Type:
        """The type of the result for one row; for a table function, an array of structs."""
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
        """The name of the function's module."""
        return self.python.partition(":")[0]

    @property
    def attribute(self) -> str:
        """The name of the function in its module."""
        return self.python.partition(":")[2]


def _type(text: str) -> Type:
    try:
        return Type.of(text)
    except SchemaError as error:
        raise ValueError(str(error)) from None
