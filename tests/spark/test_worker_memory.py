"""The garbage collector for reference cycles in Python workers."""

from __future__ import annotations

import gc

from rowkind.service.spark.worker_memory import freeze_long_lived_objects


def test_what_a_worker_has_after_its_first_task_is_frozen_once() -> None:
    """The objects that exist after the first task are frozen once, and objects of later tasks are not frozen."""
    # Processors of other tests in this process have already frozen objects.
    gc.unfreeze()
    before = gc.get_freeze_count()
    try:
        freeze_long_lived_objects("test")
        assert gc.get_freeze_count() == before
        freeze_long_lived_objects("test")
        frozen = gc.get_freeze_count()
        assert frozen > before + 10_000
        later = [[number] for number in range(1000)]
        freeze_long_lived_objects("test")
        # Another thread of this process may have freed some of them.
        assert gc.get_freeze_count() <= frozen
        assert any(each is later for each in gc.get_objects()), "what was made later is frozen"
        assert len(later) == 1000
    finally:
        gc.unfreeze()
