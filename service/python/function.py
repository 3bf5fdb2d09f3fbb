"""A Python function over Arrow arrays, as the job declares it."""

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
    """A view that an aggregate declares, with the types of its keys and values; a set has no values."""

    name: str
    kind: ViewKind
    key: Type
    value: Type | None

    @property
    def counter(self) -> str:
        """The name of the state field that has the position of a list's next element."""
        return f"#{self.name}"


@dataclass(frozen=True)
class PythonFunction:
    """A Python function, called `name` in SQL. It returns one value per row, or an array of rows (table function).

    - `arguments`: the types to which arguments are cast.
    - `called_on_null`: if False, the function is called only for rows without NULL arguments; other results are NULL.
    - `version`: identifies the code in a checkpoint: the version in the job, or else the code's digest.
    - `parameters`, `gives`: the argument and result types in DuckDB's syntax.
    - `accumulator`, `views`: for an aggregate, which is a class: the fields of its state, and its views.
    - `retracts`, `merges`: whether an aggregate has the methods `retract` and `merge`.
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
        """The name in DuckDB, which is unique to the function's code and declaration."""
        said = (self.module, self.attribute, self.arguments, self.result, self.deterministic, self.called_on_null)
        kept = f" {self.accumulator} {self.views}" if self.kind == "aggregate" else ""
        return "python_" + hashlib.sha256(f"{said} {self.version}{kept}".encode()).hexdigest()[:16]

    def loaded(self) -> Callable[..., Any]:
        """Load the function. Raises FunctionError."""
        try:
            found = self.code.load(self.module, self.attribute)
        except FunctionError as error:
            raise FunctionError(f"function {self.name}: {error}") from None
        if not callable(found):
            raise FunctionError(f"function {self.name}: {self.module}:{self.attribute} is not a function")
        if self.kind == "aggregate" and (missing := [each for each in _METHODS if not hasattr(found, each)]):
            raise FunctionError(f"function {self.name}: {self.module}:{self.attribute} has no method {missing[0]}")
        called: Callable[..., Any] = found
        return called


def called(function: str | PythonFunction) -> str:
    """Return a string that identifies an aggregate function, so that two functions can be compared."""
    return f"{function.name} {function.identity}" if isinstance(function, PythonFunction) else function
