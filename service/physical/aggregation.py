"""What an aggregate of a plan computes: its groups and its calls, over columns of its input."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from rowkind.avro.schema import Record, Type
from rowkind.operators.aggregate.function import AggregateFunction, Stage
from rowkind.operators.field_roles import ASIDE, COLUMN, NO_FACT, fact
from rowkind.service.physical.clocks import Closing, Ending
from rowkind.service.python.function import PythonFunction


@dataclass(frozen=True)
class OrderColumn:
    """One column of ORDER BY. `column` None stands for arrival, which the SQL calls PROCTIME()."""

    column: str | None = field(metadata=COLUMN)
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class AggregateCall:
    """One call of an aggregate function over columns of the aggregate's input, in the logical and the physical plan.

    `arguments` is empty for COUNT(*); it is more than one column for COUNT(DISTINCT a, b), for a value and what it is
    by, for y and x, and for a value by arrival with the digest of its row. `filter` is a boolean column: a row counts
    where it is true. `order` is that of the values that are gathered, `constants` what else is written out: a
    separator, or the fractions of a percentile.

    `grows`: the extreme is never retracted without a better one in its place. Of a call in two steps `stage` is the
    step; the second adds up the results of the first, whose arguments were of `types`. It `tries`: a result that does
    not fit its type is NULL.
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
        """The columns of the order."""
        return tuple(each.column for each in self.order if each.column is not None)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it is computed from."""
        return (*self.arguments, *self.ordered_by, *([self.filter] if self.filter is not None else []))

    @property
    def fallible(self) -> bool:
        """Whether a row fails whose result does not fit its type."""
        exact = self.function in ("sum", "avg") and self.type.kind != "double"
        return exact and self.stage in ("whole", "second") and not self.tries

    def named(self, name: str, text: str) -> PhysicalAggregateCall:
        """The call in the physical plan."""
        plain = {each.name: getattr(self, each.name) for each in fields(AggregateCall)}
        return PhysicalAggregateCall(**plain, name=name, text=text)


@dataclass(frozen=True)
class PhysicalAggregateCall(AggregateCall):
    """A call with the name of its result, and the SQL that the user wrote."""

    name: str = field(kw_only=True, metadata=ASIDE)
    text: str = field(kw_only=True, metadata=ASIDE)


@dataclass(frozen=True)
class Aggregation:
    """What an aggregate computes over rows of `input`: the `group` columns, and behind them a column per call.

    `retracts` says that the input may take rows back. `output` are the group columns and the calls' results. `closing`
    is when groups are let go of, by one of their columns, and `ending` the same by what they have as result.
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
        """Whether each task may add its rows up before they are shuffled."""
        own = [call.function for call in self.calls if isinstance(call.function, PythonFunction)]
        return not own or (not self.retracts and all(each.merges and not each.views for each in own))
