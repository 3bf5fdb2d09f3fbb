"""The definition of a window function with an order, over columns of its input."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from rowkind.avro.schema import Type
from rowkind.operators.field_roles import ASIDE, COLUMN
from rowkind.operators.over.framing import Frame, OverFunction


@dataclass(frozen=True)
class WindowCall:
    """One window function over columns of its input, in the logical and the physical plan.

    - `arguments`: empty for COUNT(*) and for rank numbers. The second argument is the default of LAG and LEAD.
    - `filter`: a boolean column. A row counts if the column is true.
    - `nth`: the position in the frame for NTH_VALUE, the offset for LAG, or the number of buckets for NTILE.
    - `skips`: whether rows without a value are skipped. LAG then goes back by `nth` of the remaining rows.
    - `tries`: whether a result that does not fit its type is NULL instead of an error.
    """

    function: OverFunction
    arguments: tuple[str, ...] = field(metadata=COLUMN)
    type: Type
    frame: Frame
    filter: str | None = field(default=None, metadata=COLUMN)
    nth: int = 1
    skips: bool = False
    tries: bool = False

    @property
    def fallible(self) -> bool:
        """Whether the call fails on a result that does not fit its type."""
        return self.function in ("sum", "avg") and self.type.kind != "double" and not self.tries

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that the call reads."""
        return (*self.arguments, *([self.filter] if self.filter is not None else []))

    def named(self, name: str, text: str) -> PhysicalWindowCall:
        """Return the call of the physical plan, with the name of its result and its SQL text."""
        plain = {each.name: getattr(self, each.name) for each in fields(WindowCall)}
        return PhysicalWindowCall(**plain, name=name, text=text)


@dataclass(frozen=True)
class PhysicalWindowCall(WindowCall):
    """A call with the name of its result and the SQL that the user wrote."""

    name: str = field(kw_only=True, metadata=ASIDE)
    text: str = field(kw_only=True, metadata=ASIDE)
