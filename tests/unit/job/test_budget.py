"""How the memory limit of a job is divided."""

from __future__ import annotations

import pytest

from rowkind.service.job import size
from rowkind.service.machine.budget import Budget, budget, least

_MB = 1 << 20


@pytest.mark.parametrize(
    ("text", "amount"),
    [("2g", 2048 * _MB), ("2Gi", 2048 * _MB), ("1536 MB", 1536 * _MB), ("3000000K", 3_000_000 << 10)],
)
def test_an_amount_is_written_as_people_do(text: str, amount: int) -> None:
    """Memory sizes are accepted in common spellings, with units as powers of 1024, in lower or upper case."""
    assert size.parse(text) == amount


@pytest.mark.parametrize("parallelism", [1, 2, 16])
@pytest.mark.parametrize("more", [0, 500 * _MB, 100_000 * _MB])
def test_the_parts_are_less_than_the_whole(parallelism: int, more: int) -> None:
    """The parts leave enough memory for the fixed costs, and a batch gets at least 10 MB."""
    memory = least(parallelism) + more
    parts = budget(memory, parallelism)
    assert parts.cache is not None
    shared = parts.heap + parts.direct + parts.rocksdb + parts.cache + 8 * parts.batch
    assert shared <= memory - (least(parallelism) - 960 * _MB)
    assert parts.batch >= 10 * _MB


def test_without_a_limit_there_is_none_on_what_is_kept_at_hand() -> None:
    """Without a memory limit the state cache has no limit, and the other parts have their defaults."""
    assert budget(None, 2) == Budget()
    assert Budget().cache is None


@pytest.mark.parametrize("parallelism", [1, 2, 4, 8])
def test_buffers_of_all_tasks_can_grow_at_once(parallelism: int) -> None:
    """The direct memory suffices if the buffers of all tasks grow at once, when each of them exists three times."""
    for parts in (Budget(), budget(4096 * _MB, parallelism)):
        assert 3 * parallelism * parts.at_once(parallelism) <= parts.direct
        assert parts.at_once(parallelism) >= 4 * _MB
