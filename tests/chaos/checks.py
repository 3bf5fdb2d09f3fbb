"""Invariants of a job under faults: each check is a sink, one per exactly-once sink mode.

All checks read the same order book, so that one job can run them all.
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
    """A sink and the required content of its topic."""

    name: str
    sink: dict[str, Any]

    def right(self, events: list[Event]) -> Counter[Values]:
        """Return DuckDB's result over the tables after these events."""
        return expected(events, self.sink["sql"])

    def validate(self, results: Results, events: list[Event]) -> None:
        """Assert that no change was written twice or left out in any partition, and that the final rows are right."""
        rows, right = results.rows(), self.right(events)
        assert not results.flaws, f"{self.name}: {len(results.flaws)} flaws:\n" + "\n".join(results.flaws[:10])
        assert rows == right, f"{self.name}: missing {list(right - rows)[:5]}, too many {list(rows - right)[:5]}"


RETRACT_BY_KEY = Check("retract_by_key", {"mode": "retract", "key": "payment_id", "sql": _MATCHED})
RETRACT_WITHOUT_KEY = Check("retract_without_key", {"mode": "retract", "sql": _PADDED})
UPSERT = Check("upsert", {"mode": "upsert", "key": "payment_id", "sql": _MATCHED})

KEPT = Check("kept", {"mode": "retract", "sql": _KEPT})
"""An aggregate that stores all values of each group, whose times must survive a clock that is set back."""

CHAINED = Check("chained", {"mode": "retract", "sql": _CHAINED})
"""The second join reads the state of the first one."""

CHECKS = (RETRACT_BY_KEY, RETRACT_WITHOUT_KEY, UPSERT)
