"""A function over Arrow arrays, as the job says that it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rowkind.avro.schema import Field, Type
from rowkind.service.python.code import Code
from rowkind.service.python.errors import FunctionError

ViewKind = Literal["map", "set", "list"]

_METHODS = ("create", "add", "result")

FunctionKind = Literal["scalar", "table", "aggregate"]


@dataclass(frozen=True)
class ViewType:
    """A view that an aggregate declares: what its keys are and, but for a set, its values."""

    name: str
    kind: ViewKind
    key: Type
    value: Type | None

    @property
    def counter(self) -> str:
        """The field of a state that has the number of the next element of a list."""
        return f"#{self.name}"


@dataclass(frozen=True)
class PythonFunction:
    """A function of the job's, `name` in SQL, which gives one value per row, or as a table function an array of rows.

    `arguments` are cast to their types. Unless it is `called_on_null` it sees only rows without a NULL among them, and
    the result is NULL for others. `version` stands for its code in a checkpoint: that of the job, or the code's digest.
    `parameters` and `gives` are the types as DuckDB calls them. An aggregate is a class: `accumulator` are the fields
    of its state, `views` what it keeps beside; it `retracts` and `merges` if it has methods for that.
    """

    name: str
    kind: FunctionKind
    module: str
    attribute: str
    arguments: tuple[Type, ...]
    result: Type
    deterministic: bool
    called_on_null: bool
    code: Code
    version: str
    parameters: tuple[str, ...]
    gives: str
    accumulator: tuple[Field, ...] = ()
    views: tuple[ViewType, ...] = ()
    retracts: bool = True
    merges: bool = False

    @property
    def identity(self) -> str:
        """What it is called in DuckDB: another function, another name."""
        said = (self.module, self.attribute, self.arguments, self.result, self.deterministic, self.called_on_null)
        kept = f" {self.accumulator} {self.views}" if self.kind == "aggregate" else ""
        return "python_" + hashlib.sha256(f"{said} {self.version}{kept}".encode()).hexdigest()[:16]

    def loaded(self) -> Callable[..., Any]:
        """The function itself. Raises FunctionError."""
        try:
            found = self.code.load(self.module, self.attribute)
        except FunctionError as error:
            raise FunctionError(f"function {self.name}: {error}") from None
        if not callable(found):
            raise FunctionError(f"function {self.name}: {self.module}:{self.attribute} is no function")
        if self.kind == "aggregate" and (missing := [each for each in _METHODS if not hasattr(found, each)]):
            raise FunctionError(f"function {self.name}: {self.module}:{self.attribute} has no method {missing[0]}")
        called: Callable[..., Any] = found
        return called


def called(function: str | PythonFunction) -> str:
    """What stands for an aggregate function where two are compared."""
    return f"{function.name} {function.identity}" if isinstance(function, PythonFunction) else function
