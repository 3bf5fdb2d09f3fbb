"""Random scalar expressions compared with Spark, many per seed: types, values and failures must be equal."""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Iterable

from rowkind.service.spark.session import session
from tests.spark.expressions import COLUMNS, random_expression, random_value
from tests.spark.sql_oracle import compiled, differences, frame_of

ROWS = 40
EXPRESSIONS = 80


def look(seeds: Iterable[int]) -> bool:
    """Compare expressions for every seed; print the differences and counts; return whether all agree."""
    compared = refused = wrong = 0
    # Spark's failures are expected here; suppress its stack traces.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    with tempfile.TemporaryDirectory() as folder:
        spark = session("fuzz", master="local[2]", parallelism=2, checkpoint=folder)
        try:
            for seed in seeds:
                rng = random.Random(seed)
                columns = {name: [random_value(rng, name) for _ in range(ROWS)] for name in COLUMNS.names}
                made = {
                    text: compiled(text, COLUMNS) for text in (random_expression(rng, 3) for _ in range(EXPRESSIONS))
                }
                known = {text: expression for text, expression in made.items() if expression is not None}
                found = differences(frame_of(spark, COLUMNS, columns), COLUMNS, columns, known)
                compared, refused, wrong = compared + len(known), refused + len(made) - len(known), wrong + len(found)
                for each in found:
                    print(f"seed {seed}: {each}", flush=True)
        finally:
            spark.stop()
    print(f"{compared} expressions over {ROWS} rows each, {refused} more refused, {wrong} wrong")
    return not wrong
