"""What an aggregate of a plan computes: its groups and its calls, over columns of its input."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowkind.avro.schema import Record, Type
from rowkind.operators.aggregate.function import AggregateFunction, Stage
from rowkind.operators.field_roles import ASIDE, COLUMN, NO_FACT, fact
from rowkind.service.physical.clocks import Closing, Ending
from rowkind.service.python.function import PythonFunction


@dataclass(frozen=True)
class GatheredOrder:
    """One column of the order of gathered values."""

    column: str = field(metadata=COLUMN)
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class AggregateCall:
    """One call: its result's name and type, the columns of the input that it reads, and what the user wrote.

    `order` is that of gathered values and `constants` their separator or fractions. `grows` says that an extreme is
    never taken back without a better one. The second `stage` adds up what the first one has over arguments of `types`.
    It `tries`: a result that does not fit its type is NULL.
    """

    name: str = field(metadata=ASIDE)
    function: AggregateFunction | PythonFunction
    type: Type
    arguments: tuple[str, ...] = field(metadata=COLUMN)
    filter: str | None = field(metadata=COLUMN)
    distinct: bool
    text: str = field(metadata=ASIDE)
    order: tuple[GatheredOrder, ...] = ()
    constants: tuple[str, ...] = ()
    grows: bool = False
    stage: Stage = "whole"
    types: tuple[Type, ...] = ()
    tries: bool = False

    @property
    def fallible(self) -> bool:
        """Whether a row fails whose result does not fit its type."""
        exact = self.function in ("sum", "avg") and self.type.kind != "double"
        return exact and self.stage in ("whole", "second") and not self.tries


@dataclass(frozen=True)
class Aggregation:
    """What an aggregate computes over rows of `input`: the `group` columns, and behind them a column per call.

    `retracts` says that the input may take rows back. `output` are the group columns and the calls' results. `closing`
    is when groups are let go of, by one of their columns, and `ending` the same by what they have as result.
    """

    input: Record = field(metadata=NO_FACT)
    group: tuple[str, ...] = field(metadata={**COLUMN, **fact("group", empty="none")})
    calls: tuple[AggregateCall, ...] = field(metadata=fact("calls", empty="none"))
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
