"""The collector of cycles in Python workers."""

from __future__ import annotations

import gc

from rowkind.service.spark.worker_memory import freeze_long_lived_objects


def test_what_a_worker_has_after_its_first_task_is_frozen_once() -> None:
    """Not what the first task finds, and not what later ones make."""
    # Processors that other tests ran in this process have frozen it.
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
        # Some of it may have gone meanwhile, by another thread of this process.
        assert gc.get_freeze_count() <= frozen
        assert any(each is later for each in gc.get_objects()), "what was made later is frozen"
        assert len(later) == 1000
    finally:
        gc.unfreeze()
