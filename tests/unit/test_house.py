"""The limits of how the code is built: what a change of structure has won is not lost again."""

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
"""Folders with one module for each entry of a table."""
CONCEPTS = frozenset(
    [
        "avro.arrow_types",
        "avro.logical",
        "operators.arrangement.nearest_scan",
        "operators.time.stamp",
        "service.checkpoint.job_digest",
        "service.checkpoint.rescale",
        "service.checkpoint.upgrade_preview",
        "service.dev.serve",
        "service.execute.job_functions",
        "service.execute.kernels",
        "service.execute.rows_in_sessions",
        "service.execute.salting",
        "service.job.size",
        "service.kafka.ages",
        "service.library.plan",
        "service.monitoring.process_memory",
        "service.multi.service",
        "service.plan.lints",
        "service.plan.scalar.time_units",
        "service.plan.scalar.zones",
        "service.plan.sql.tuples",
        "service.query.initial_counters",
        "service.spark.stage_tasks",
        "service.spark.warm",
        "service.web.batch_chart",
    ]
)
"""Small modules with one importer that are a concept of their own."""


@cache
def house() -> House:
    """The house of today."""
    return House()


def test_nodes_are_known_by_their_shapes() -> None:
    """Few `match` statements know nodes of plans by name, with few arms: the rest goes by shapes and tables."""
    found = list(house().matches())
    assert len(found) <= MOST_MATCHES, found
    assert sum(arms for _, arms in found) <= MOST_ARMS, found


def test_operators_are_rooms_with_few_doors() -> None:
    """A folder per operator, above arrangement and columns: few rooms, few arrows of imports between them."""
    rooms, arrows = house().rooms("operators", 1)
    assert len(rooms) <= MOST_ROOMS, rooms
    assert len(arrows) <= MOST_ARROWS, arrows


def test_no_module_is_loose_in_the_service() -> None:
    """Each module of the service is in a room."""
    rooms, _ = house().rooms("service", 1)
    assert all((house().root / room.replace(".", "/")).is_dir() for room in rooms)


def test_a_small_module_is_a_concept() -> None:
    """A module under 60 lines with one importer is part of it, unless it is one of a family or a concept by itself."""
    small = {each for each in house().small_with_one_importer() if not each.startswith(FAMILIES)}
    assert small == CONCEPTS
