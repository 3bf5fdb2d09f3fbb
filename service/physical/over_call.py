"""What a window function with an order computes, over columns of its input."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from rowkind.avro.schema import Type
from rowkind.operators.field_roles import ASIDE, COLUMN
from rowkind.operators.over.framing import Frame, OverFunction


@dataclass(frozen=True)
class WindowCall:
    """One window function over columns of its input, in the logical and the physical plan.

    `arguments` are empty for COUNT(*) and numbers, and a second one is the default of LAG and LEAD. A row counts where
    the column `filter` is true. `nth` is the number of the row in the frame that NTH_VALUE takes, or NTILE's. `skips`:
    rows without a value are passed over; LAG goes `nth` of the others back then. It `tries`: a result that does not
    fit its type is NULL.
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
        """Whether a row fails whose result does not fit its type."""
        return self.function in ("sum", "avg") and self.type.kind != "double" and not self.tries

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it is computed from."""
        return (*self.arguments, *([self.filter] if self.filter is not None else []))

    def named(self, name: str, text: str) -> PhysicalWindowCall:
        """The call in the physical plan."""
        plain = {each.name: getattr(self, each.name) for each in fields(WindowCall)}
        return PhysicalWindowCall(**plain, name=name, text=text)


@dataclass(frozen=True)
class PhysicalWindowCall(WindowCall):
    """A call with the name of its result, and the SQL that the user wrote."""

    name: str = field(kw_only=True, metadata=ASIDE)
    text: str = field(kw_only=True, metadata=ASIDE)
