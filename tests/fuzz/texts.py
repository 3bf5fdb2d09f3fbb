"""Random texts for the planner and for `rowkind check`, and a search for crashes on them."""

from __future__ import annotations

import random
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.examples.jobs import EXAMPLES
from tests.fuzz.job_texts import changed, torn
from tests.fuzz.sql_texts import Grammar, broken
from tests.fuzz.test_refusals import check_file, check_sql, valid
from tests.plan.cases import TABLES

KINDS = {
    "grammar": "SQL generated from a grammar",
    "broken": "SQL with words removed or moved",
    "changed": "job files with changed settings",
    "torn": "job files with damaged lines",
}


def look(seeds: Iterable[int]) -> dict[str, Counter[str]]:
    """Return the outcomes of texts of each kind per seed; failures are printed and counted as crashes."""
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in KINDS.values()}
    seen: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            for kind, text in _texts(seed):
                try:
                    if kind in ("grammar", "broken"):
                        taken = check_sql(text, seed)
                    else:
                        taken = check_file(text, Path(folder) / "job.yaml")
                    outcomes[KINDS[kind]]["rows" if taken else "refused"] += 1
                except Exception as error:  # noqa: BLE001 -- the kind of error that it looks for
                    outcomes[KINDS[kind]]["crashes"] += 1
                    where = "\n".join(traceback.format_exc().splitlines()[-7:])
                    known = f"{type(error).__name__} {where.splitlines()[-3]}"
                    if known not in seen:
                        seen.add(known)
                        print(f"\n==== {kind}, seed {seed}\n{text if kind in ('grammar', 'broken') else ''}\n{where}")
    return outcomes


def _texts(seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    made = [("grammar", Grammar(random.Random(seed)).query()), ("broken", broken(rng, *rng.choices(valid(), k=2)))]
    jobs = [(EXAMPLES / "orders-payments" / "job.yaml").read_text(), TABLES.read_text()]
    return [*made, ("changed", changed(rng, rng.choice(jobs))), ("torn", torn(rng, rng.choice(jobs)))]
