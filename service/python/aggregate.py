"""Aggregate functions in Python: a class with `create`, `add`, `result`, and if needed `retract` and `merge`.

    class Spread:
        def create(self):                 return {"n": 0}                 the state of a group without rows
        def add(self, state, x):          state["n"] += len(x)            one Arrow array per argument: inserted rows
        def retract(self, state, x):      state["n"] -= len(x)            one Arrow array per argument: retracted rows
        def merge(self, state, other):    state["n"] += other["n"]        combine the states of two tasks
        def result(self, state):          return state["n"]

A state is a dict with the fields of the job's `accumulator`, and with the declared `views` under their names. A method
either changes the state in place or returns a new one. It is called once per group, with all rows of the batch that
belong to the group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.python_values import to_python
from rowkind.avro.schema import Field, Record
from rowkind.avro.type import Type
from rowkind.operators.aggregate.group_function import Views
from rowkind.operators.aggregate.group_views import GroupViews
from rowkind.service.python.code import describe
from rowkind.service.python.errors import FunctionError
from rowkind.service.python.exact import MisfitError, exact_values
from rowkind.service.python.function import PythonFunction
from rowkind.service.python.views import Elements

_BIGINT = Type.of("BIGINT NOT NULL")


@dataclass(frozen=True)
class PythonAggregate:
    """A Python aggregate that implements the interface `operators.aggregate.group_function.GroupFunction`."""

    function: PythonFunction

    @property
    def views(self) -> Sequence[Elements]:
        """The codecs of the function's views."""
        return tuple(map(Elements, self.function.views))

    def create(self) -> dict[str, Any]:
        """Return the state of a group without rows."""
        state = self._called("create") or {}
        return {**state, **{view.counter: 0 for view in self.function.views if view.kind == "list"}}

    def load(self, packed: pa.BinaryArray) -> list[dict[str, Any]]:
        """Return the states, decoded to dicts."""
        rows = codec.read(self._record, packed)
        columns = [to_python(rows.column(name)) for name in self._record.names]
        if not columns:
            return [{} for _ in range(len(packed))]
        return [dict(zip(self._record.names, values, strict=True)) for values in zip(*columns, strict=True)]

    def save(self, states: Sequence[dict[str, Any]]) -> pa.BinaryArray:
        """Encode states. Raises ValueError for a missing field or value, FunctionError for a value of a wrong type."""
        columns = {}
        for each in self._record.fields:
            try:
                columns[each.name] = exact_values([state[each.name] for state in states], each.type.arrow)
            except KeyError:
                raise ValueError(f"{self.function.name}: the state has no field {each.name}") from None
            except MisfitError as error:
                what = f"field {each.name} of the state is not {each.type.sql}"
                raise FunctionError(f"function {self.function.name}: {what}: {error}") from None
            if columns[each.name].null_count and not each.type.nullable:
                raise ValueError(f"{self.function.name}: {each.name} is None, but the job declares it NOT NULL")
        return codec.encode(self._record, columns, len(states))

    def add(self, state: dict[str, Any], rows: pa.StructArray, views: Views) -> dict[str, Any]:
        """Return the state after these rows were inserted."""
        return self._changed("add", state, views, rows.flatten())

    def retract(self, state: dict[str, Any], rows: pa.StructArray, views: Views) -> dict[str, Any]:
        """Return the state after these rows were retracted."""
        return self._changed("retract", state, views, rows.flatten())

    def merge(self, state: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        """Combine two states of the same group."""
        merged: dict[str, Any] | None = self._called("merge", state, other)
        return state if merged is None else merged

    def result(self, state: dict[str, Any], views: Views) -> Any:
        """Return the result of a group."""
        return self._called("result", self._whole(state, views))

    def pack(self, results: Sequence[Any]) -> pa.BinaryArray:
        """Encode results, which may be None. Raises FunctionError for a value of a wrong type."""
        of = self.function
        try:
            column = exact_values(results, of.result.arrow)
        except MisfitError as error:
            raise FunctionError(f"function {of.name} did not return {of.result.sql}: {error}") from None
        return codec.encode(self._results, {"result": column}, len(results))

    def unpack(self, packed: pa.BinaryArray) -> pa.Array:
        """Return the results, decoded to an array."""
        return codec.read(self._results, packed).column("result")

    def _changed(self, method: str, state: dict[str, Any], views: Views, columns: list[pa.Array]) -> dict[str, Any]:
        whole = self._whole(state, views)
        given = [each.cast(type_.arrow) for each, type_ in zip(columns, self.function.arguments, strict=True)]
        found = self._called(method, whole, *given)
        found = whole if found is None else {**whole, **found}
        return {name: found[name] for name in self._record.names if name in found}

    def _whole(self, state: dict[str, Any], views: Views) -> dict[str, Any]:
        """Return a state with its views. A list view updates its counter in the returned dict."""
        whole = dict(state)
        for number, view in enumerate(self.views):
            store = _Loose() if views.of is None else _Kept(views, number)
            whole[view.of.name] = view.opened(store, whole)
        return whole

    def _called(self, method: str, *arguments: Any) -> Any:
        call = _methods(self.function)[method]
        try:
            return call(*arguments)
        except Exception as error:  # noqa: BLE001 -- whatever the function does
            where = describe(error, self.function.code.place)
            raise ValueError(f"{self.function.name}.{method}: {where}") from None

    @property
    def _record(self) -> Record:
        counters = tuple(Field(view.counter, _BIGINT) for view in self.function.views if view.kind == "list")
        return Record("State", (*self.function.accumulator, *counters))

    @property
    def _results(self) -> Record:
        return Record("Result", (Field("result", self.function.result.as_nullable()),))


@dataclass(frozen=True)
class _Kept:
    """A view that is stored in the state of a group."""

    views: Views
    number: int

    def read(self, keys: Sequence[Any]) -> list[Any]:
        return self._of.read(self._place, keys)

    def all(self) -> dict[Any, Any]:
        return self._of.all(self._place)

    def write(self, key: Any, value: Any) -> None:
        self._of.write(self._place, key, value)

    def remove(self, key: Any) -> None:
        self._of.remove(self._place, key)

    @property
    def _of(self) -> GroupViews:
        assert self.views.of is not None, "a stored view has an arrangement"
        return self.views.of

    @property
    def _place(self) -> tuple[int, int]:
        return self.views.group, self.views.first + self.number


@dataclass
class _Loose:
    """A view in memory that is initially empty. It is used where no view is stored, as when a single row is tried."""

    values: dict[Any, Any] = field(default_factory=dict)

    def read(self, keys: Sequence[Any]) -> list[Any]:
        return [self.values.get(key) for key in keys]

    def all(self) -> dict[Any, Any]:
        return dict(self.values)

    def write(self, key: Any, value: Any) -> None:
        self.values[key] = value

    def remove(self, key: Any) -> None:
        self.values.pop(key, None)


@lru_cache(maxsize=64)
def _methods(function: PythonFunction) -> dict[str, Callable[..., Any]]:
    instance = function.loaded()()
    names = ("create", "add", "retract", "merge", "result")
    return {name: getattr(instance, name) for name in names if hasattr(instance, name)}
