"""What a field of plain data is where values are compared by what they compute, whatever things are called.

A field without a role counts as it is. So a new field counts unless its class says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

ROLE = "role"

ASIDE: Mapping[str, str] = {ROLE: "aside"}
"""It does not count: it is for people, or says where something runs, or follows from the other fields."""

COLUMN: Mapping[str, str] = {ROLE: "column"}
"""The name of a column, or several: the place of the column counts, and not its name."""

RESULTS: Mapping[str, str] = {ROLE: "results"}
"""By the names of the columns that come out, which do not count."""
