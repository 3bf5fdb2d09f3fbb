"""The definition of an aggregate in a plan: its groups and its calls, over columns of its input."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from rowkind.avro.schema import Record, Type
from rowkind.operators.aggregate.function import AggregateFunction, Stage
from rowkind.operators.field_roles import ASIDE, COLUMN, NO_FACT, fact
from rowkind.service.physical.clocks import Closing, Ending
from rowkind.service.python.function import PythonFunction


@dataclass(frozen=True)
class OrderColumn:
    """One column of ORDER BY. If `column` is None, the order is that of arrival, PROCTIME() in the SQL."""

    column: str | None = field(metadata=COLUMN)
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class AggregateCall:
    """One call of an aggregate function over columns of the aggregate's input, in the logical and the physical plan.

    `arguments` is empty for COUNT(*). It has several columns for COUNT(DISTINCT a, b), for a value and the column that
    orders it, for y and x, and for a value by arrival with its row digest. `filter` is a boolean column: a row counts
    if it is true. `order` is the order of gathered values. `constants` holds the literals: a separator, or the
    fractions of a percentile.

    `grows`: the extreme is never retracted unless a better one replaces it. `stage` is the step of a call that is
    computed in two steps. The second step adds up the results of the first, whose arguments had the types `types`.
    `tries`: a result that does not fit its type is NULL.
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
        """The columns that the order names."""
        return tuple(each.column for each in self.order if each.column is not None)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that the call reads."""
        return (*self.arguments, *self.ordered_by, *([self.filter] if self.filter is not None else []))

    @property
    def fallible(self) -> bool:
        """Whether the call fails on a result that does not fit its type."""
        exact = self.function in ("sum", "avg") and self.type.kind != "double"
        return exact and self.stage in ("whole", "second") and not self.tries

    def named(self, name: str, text: str) -> PhysicalAggregateCall:
        """Return the call for the physical plan."""
        plain = {each.name: getattr(self, each.name) for each in fields(AggregateCall)}
        return PhysicalAggregateCall(**plain, name=name, text=text)


@dataclass(frozen=True)
class PhysicalAggregateCall(AggregateCall):
    """A call with the name of its result and the SQL that the user wrote."""

    name: str = field(kw_only=True, metadata=ASIDE)
    text: str = field(kw_only=True, metadata=ASIDE)


@dataclass(frozen=True)
class Aggregation:
    """The definition of an aggregate over rows of `input`: the `group` columns, followed by one column per call.

    `retracts`: the input may contain retractions. `output` has the group columns and the calls' results. `closing` says
    when groups are evicted by the time in a group column, `ending` when they are evicted by the time in a result.
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
