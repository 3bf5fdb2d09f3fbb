"""What must hold whatever happens to the job: each check is a sink, the three forms that deliver exactly once.

All are over the same order book, so that one job can run every check at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from rowkind.service.dev.demo.data import Event
from rowkind.service.dev.demo.result import expected
from tests.run.results import Results, Values

_PADDED = """
    SELECT o.order_id, o.customer, o.amount, o.status, p.payment_id, p.paid, p.method
    FROM orders o LEFT JOIN payments p ON o.order_id = p.order_id
"""
_MATCHED = """
    SELECT p.payment_id, o.order_id, o.customer, p.paid, o.amount - p.paid AS remaining
    FROM orders o JOIN payments p ON o.order_id = p.order_id
"""
_CHAINED = """
    SELECT o.order_id, o.status, p.paid, q.method
    FROM orders o JOIN payments p ON o.order_id = p.order_id LEFT JOIN payments q ON q.order_id = o.order_id
"""
_KEPT = """
    SELECT o.customer, COUNT(DISTINCT p.method) AS methods, MIN(p.paid) AS least, MAX(p.paid) AS most
    FROM orders o JOIN payments p ON o.order_id = p.order_id GROUP BY o.customer
"""


@dataclass(frozen=True)
class Check:
    """A sink, and what its topic must be in the end."""

    name: str
    sink: dict[str, Any]

    def right(self, events: list[Event]) -> Counter[Values]:
        """The rows that DuckDB finds in the tables that the events leave behind."""
        return expected(events, self.sink["sql"])

    def validate(self, results: Results, events: list[Event]) -> None:
        """No change was written twice or left out at any point of any partition, and the sum is right."""
        rows, right = results.rows(), self.right(events)
        assert not results.flaws, f"{self.name}: {len(results.flaws)} flaws:\n" + "\n".join(results.flaws[:10])
        assert rows == right, f"{self.name}: missing {list(right - rows)[:5]}, too many {list(rows - right)[:5]}"


RETRACT_BY_KEY = Check("retract_by_key", {"mode": "retract", "key": "payment_id", "sql": _MATCHED})
RETRACT_WITHOUT_KEY = Check("retract_without_key", {"mode": "retract", "sql": _PADDED})
UPSERT = Check("upsert", {"mode": "upsert", "key": "payment_id", "sql": _MATCHED})

KEPT = Check("kept", {"mode": "retract", "sql": _KEPT})
"""Of each group all values, whose times have to bear a clock that is put back."""

CHAINED = Check("chained", {"mode": "retract", "sql": _CHAINED})
"""The second join reads what the first one keeps."""

CHECKS = (RETRACT_BY_KEY, RETRACT_WITHOUT_KEY, UPSERT)
