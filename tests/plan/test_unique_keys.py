"""Which columns of a result identify its rows."""

from __future__ import annotations

from pathlib import Path

from rowkind.service.plan.pipeline import PASSES, logical
from rowkind.service.plan.traits.unique_keys import unique_keys
from tests.plan.cases import Case


def test_a_number_that_is_compared_as_double_does_not_stand_for_what_it_equals(tmp_path: Path) -> None:
    """Two BIGINTs may be equal to one DOUBLE, even where another part of the join's key tells the two apart."""
    pairs = "(SELECT DISTINCT quantity, shop FROM moves)"
    sql = (
        f"SELECT g.customer_id, m.quantity, m.shop FROM signups g JOIN {pairs} m "
        "ON g.customer_id = m.quantity AND g.customer_id = m.shop"
    )
    query = logical(Case(Path("case"), "A query.\nsink: retract", sql, "").job(tmp_path), "result")
    for each in PASSES:
        query = each(query)
    assert unique_keys(query.root) == {frozenset({"customer_id"}), frozenset({"shop"})}
