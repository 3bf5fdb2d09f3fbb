"""Limits on the structure of the code."""

from __future__ import annotations

from functools import cache

from tests.house import House
from tests.sources import TOGETHER

pytestmark = TOGETHER

MOST_MATCHES = 30
MOST_ARMS = 130
MOST_ROOMS = 18
MOST_ARROWS = 75
FAMILIES = ("service.plan.passes.", "service.plan.translate.", "service.plan.explain.", "service.execute.kernels.")
"""Folders with one module per entry of a table."""
CONCEPTS = frozenset(
    [
        "avro.arrow_types",
        "avro.logical",
        "operators.arrangement.nearest_scan",
        "operators.time.stamp",
        "service.checkpoint.job_digest",
        "service.run.printing",
        "service.checkpoint.rescale",
        "service.checkpoint.upgrade_preview",
        "service.client.generate",
        "service.execute.rows_in_sessions",
        "service.execute.salting",
        "service.job.size",
        "service.kafka.ages",
        "service.kafka.read_positions",
        "service.library.own_session",
        "service.library.plan",
        "service.monitoring.process_memory",
        "service.multi.service",
        "service.plan.scalar.time_units",
        "service.plan.scalar.zones",
        "service.plan.sql.tuples",
        "service.query.initial_counters",
        "service.spark.stage_tasks",
        "service.spark.warm",
        "service.verify.lineage",
        "service.web.batch_chart",
    ]
)
"""Small modules with one importer that are concepts of their own."""


@cache
def house() -> House:
    """Return the structure of the current code."""
    return House()


def test_nodes_are_known_by_their_shapes() -> None:
    """The number of `match` statements over plan nodes by class, and of their arms, stays below its limit."""
    found = list(house().matches())
    assert len(found) <= MOST_MATCHES, found
    assert sum(arms for _, arms in found) <= MOST_ARMS, found


def test_operators_are_rooms_with_few_doors() -> None:
    """The number of operator packages, and of imports between them, stays below its limit."""
    rooms, arrows = house().rooms("operators", 1)
    assert len(rooms) <= MOST_ROOMS, rooms
    assert len(arrows) <= MOST_ARROWS, arrows


def test_no_module_is_loose_in_the_service() -> None:
    """Each module of the service is in a package."""
    rooms, _ = house().rooms("service", 1)
    assert all((house().root / room.replace(".", "/")).is_dir() for room in rooms)


def test_a_small_module_is_a_concept() -> None:
    """A module under 60 lines with one importer belongs to a family or is listed as a concept."""
    small = {each for each in house().small_with_one_importer() if not each.startswith(FAMILIES)}
    assert small == CONCEPTS
