"""The columns of a result that identify its rows."""

from __future__ import annotations

import json
from pathlib import Path

from rowkind.service.job.load import load
from rowkind.service.plan.phases import PASSES
from rowkind.service.plan.pipeline import logical, plan
from rowkind.service.plan.traits.unique_keys import unique_keys
from tests.plan.cases import Case


def test_a_number_that_is_compared_as_double_does_not_stand_for_what_it_equals(tmp_path: Path) -> None:
    """Two BIGINTs can be equal to one DOUBLE, even if another part of the join's key distinguishes them."""
    pairs = "(SELECT DISTINCT quantity, shop FROM moves)"
    sql = (
        f"SELECT g.customer_id, m.quantity, m.shop FROM signups g JOIN {pairs} m "
        "ON g.customer_id = m.quantity AND g.customer_id = m.shop"
    )
    query = logical(Case(Path("case"), "A query.\nsink: retract", sql, "").job(tmp_path), "result")
    for each in PASSES:
        query = each(query)
    assert unique_keys(query.root) == {frozenset({"customer_id"}), frozenset({"shop"})}


def test_a_join_by_many_equal_columns_is_planned(tmp_path: Path) -> None:
    """Each of thirty pairs of equal columns doubles the number of equivalent keys, but only a few are considered."""
    names = [f"c{number}" for number in range(30)]
    rows = f"(SELECT DISTINCT {', '.join(names)} FROM wide)"
    on = " AND ".join(f"a.{name} = b.{name}" for name in names)
    table = {"mode": "append", "columns": dict.fromkeys(names, "INT NOT NULL")}
    sink = {"mode": "retract", "sql": f"SELECT a.* FROM {rows} a JOIN {rows} b ON {on}"}
    (tmp_path / "job.yaml").write_text(json.dumps({"job": "wide", "tables": {"wide": table}, "sinks": {"all": sink}}))
    (key,) = plan(load(tmp_path / "job.yaml"), "all").input.traits.unique_keys
    assert set(key) == set(names)
