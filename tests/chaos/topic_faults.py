"""Faults in the topics of a stopped job: deleted or recreated. Each fault asserts the job's message."""

from __future__ import annotations

from tests.chaos.scene import Scene, drained, ended_with, rebuilt


def remake_result(scene: Scene) -> None:
    """Recreate a result topic while the job is stopped: it refuses to start, and rebuilds the topic on request."""
    scene.inside()
    drained(scene)
    topic = scene.stage.remake_result(scene.stage.one())
    scene.start()
    ended_with(scene, 2)
    assert f"topic {topic} was deleted and re-created" in scene.job.error, scene.job.error
    rebuilt(scene, "--upgrade")


def remake_source(scene: Scene) -> None:
    """Recreate a source topic while the job is stopped, and send all of its rows again."""
    stage = scene.stage
    stage.catch_up(scene.job)
    drained(scene)
    table = scene.random.choice(("orders", "payments"))
    stage.shop.remake(table)
    stage.shop.say([event for event in stage.shop.events if event.table == table])
    scene.start()
    ended_with(scene, 1)
    assert "was deleted and re-created" in scene.job.error, scene.job.error
    rebuilt(scene, "--reset-state")


def lose_progress(scene: Scene) -> None:
    """Delete the progress topic while the job is stopped; the job rebuilds its state by itself."""
    scene.inside()
    drained(scene)
    scene.stage.shop.delete(f"{scene.stage.shop.name}.main.progress")
    scene.start()
    scene.stage.await_words(scene.job, "rebuilding the state from the topics")
