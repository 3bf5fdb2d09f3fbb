"""The definition of an aggregate in a plan: its groups and its calls, which read columns of the input."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from rowkind.avro.schema import Record, Type
from rowkind.operators.aggregate.function import AggregateFunction, Stage
from rowkind.operators.field_roles import ASIDE, COLUMN, NO_FACT, fact
from rowkind.service.physical.clocks import Closing, Ending
from rowkind.service.python.function import PythonFunction


@dataclass(frozen=True)
class OrderColumn:
    """One ORDER BY column. If `column` is None, rows are ordered by arrival, which the SQL writes as PROCTIME()."""

    column: str | None = field(metadata=COLUMN)
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class AggregateCall:
    """One call of an aggregate function. The call reads input columns. Logical and physical plans share this class.

    - `arguments`: the input columns that are the arguments. COUNT(*) has none. There are several for COUNT(DISTINCT a,
      b), for functions of y and x, and for values that are ordered: by another column, or by arrival with the row
      digest.
    - `filter`: a boolean column. A row counts if the column is true.
    - `order`: the order of gathered values. `constants`: the literal arguments: a separator, or a percentile's
      fractions.
    - `grows`: whether a minimum or maximum is retracted only when a better value replaces it.
    - `stage`: whether this is the whole call, or the first or second of two steps. The second step adds up the results
      of the first step. `types` are the types of the first step's arguments.
    - `tries`: whether a result that does not fit its type is NULL instead of an error.
    """

    function: AggregateFunction | PythonFunction
    arguments: tuple[str, ...] = field(metadata=COLUMN)
    type: Type
    filter: str | None = field(default=None, metadata=COLUMN)
    distinct: bool = False
    order: tuple[OrderColumn, ...] = ()
    constants: tuple[str, ...] = ()
    grows: bool = False
    stage: Stage = "whole"
    types: tuple[Type, ...] = ()
    tries: bool = False

    @property
    def ordered_by(self) -> tuple[str, ...]:
        """The columns in `order`."""
        return tuple(each.column for each in self.order if each.column is not None)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that the call reads."""
        return (*self.arguments, *self.ordered_by, *([self.filter] if self.filter is not None else []))

    @property
    def fallible(self) -> bool:
        """Whether the call fails if the result does not fit the result's type."""
        exact = self.function in ("sum", "avg") and self.type.kind != "double"
        return exact and self.stage in ("whole", "second") and not self.tries

    def named(self, name: str, text: str) -> PhysicalAggregateCall:
        """Return the call for the physical plan, with its result's name and its SQL text."""
        plain = {each.name: getattr(self, each.name) for each in fields(AggregateCall)}
        return PhysicalAggregateCall(**plain, name=name, text=text)


@dataclass(frozen=True)
class PhysicalAggregateCall(AggregateCall):
    """A call with its result's name and the SQL that the user wrote."""

    name: str = field(kw_only=True, metadata=ASIDE)
    text: str = field(kw_only=True, metadata=ASIDE)


@dataclass(frozen=True)
class Aggregation:
    """The definition of an aggregate over rows of `input`.

    `output` contains the `group` columns, followed by one column per call. `retracts` says whether the input may
    contain retractions. `closing` says when groups are evicted according to a time in a group column. `ending` says
    when they are evicted according to a time in a result.
    """

    input: Record = field(metadata=NO_FACT)
    group: tuple[str, ...] = field(metadata={**COLUMN, **fact("group", empty="none")})
    calls: tuple[PhysicalAggregateCall, ...] = field(metadata=fact("calls", empty="none"))
    output: Record = field(metadata=NO_FACT)
    retracts: bool = field(metadata=fact("state", "values that may be taken back", empty="sums only"))
    is_global: bool = field(metadata=NO_FACT)
    ttl_ms: int | None = field(metadata=NO_FACT)
    closing: Closing | None = field(default=None, repr=False)
    ending: Ending | None = field(default=None, repr=False)

    @property
    def adds_up(self) -> bool:
        """Whether each task may pre-aggregate its rows before the shuffle."""
        own = [call.function for call in self.calls if isinstance(call.function, PythonFunction)]
        return not own or (not self.retracts and all(each.merges and not each.views for each in own))
