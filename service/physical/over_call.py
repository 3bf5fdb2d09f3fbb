"""What a window function with an order computes, over columns of its input."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowkind.avro.schema import Type
from rowkind.operators.field_roles import ASIDE, COLUMN
from rowkind.operators.over.framing import Frame, OverFunction


@dataclass(frozen=True)
class WindowCall:
    """One call: its result's name and type, the columns of the input that it reads, and what the user wrote.

    `arguments` are empty for COUNT(*) and numbers, and a second one is the default of LAG and LEAD. A row counts where
    the column `filter` is true. `nth` is the number of the row in the frame that NTH_VALUE takes, or NTILE's. `skips`:
    rows without a value are passed over; LAG goes `nth` of the others back then. It `tries`: a result that does not
    fit its type is NULL.
    """

    name: str = field(metadata=ASIDE)
    function: OverFunction
    type: Type
    frame: Frame
    arguments: tuple[str, ...] = field(metadata=COLUMN)
    filter: str | None = field(metadata=COLUMN)
    nth: int
    text: str = field(metadata=ASIDE)
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
