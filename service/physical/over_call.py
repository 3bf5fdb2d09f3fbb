"""The definition of a window function with ORDER BY. The function reads columns of the input."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from rowkind.avro.schema import Type
from rowkind.operators.field_roles import ASIDE, COLUMN
from rowkind.operators.over.framing import Frame, OverFunction


@dataclass(frozen=True)
class WindowCall:
    """One call of a window function. The call reads input columns. Logical and physical plans share this class.

    - `arguments`: empty for COUNT(*) and for rank numbers. For LAG and LEAD, the second argument is the default value.
    - `filter`: a boolean column. A row counts if the column is true.
    - `nth`: the position in the frame for NTH_VALUE, the offset for LAG, or the number of buckets for NTILE.
    - `skips`: whether rows without a value are skipped (IGNORE NULLS). LAG then counts only the remaining rows.
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
        """Whether the call fails if the result does not fit the result's type."""
        return self.function in ("sum", "avg") and self.type.kind != "double" and not self.tries

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that the call reads."""
        return (*self.arguments, *([self.filter] if self.filter is not None else []))

    def named(self, name: str, text: str) -> PhysicalWindowCall:
        """Return the call for the physical plan, with its result's name and its SQL text."""
        plain = {each.name: getattr(self, each.name) for each in fields(WindowCall)}
        return PhysicalWindowCall(**plain, name=name, text=text)


@dataclass(frozen=True)
class PhysicalWindowCall(WindowCall):
    """A call with its result's name and the SQL that the user wrote."""

    name: str = field(kw_only=True, metadata=ASIDE)
    text: str = field(kw_only=True, metadata=ASIDE)
