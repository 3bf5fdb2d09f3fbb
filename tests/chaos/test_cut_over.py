"""A scenario in which queries change over existing result topics, and the run that rebuilds them is killed."""

from __future__ import annotations

import pytest

from tests.chaos.checks import CHECKS, RETRACT_BY_KEY, UPSERT
from tests.chaos.conftest import SetStage

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_changed_queries_are_cut_over(set_stage: SetStage) -> None:
    """A rebuilt sink retracts wrong rows and adds missing ones, once each, and touches no other row."""
    stage = set_stage(*CHECKS)
    stage.manipulate(0.5)
    with stage.job() as job:
        stage.catch_up(job)
        assert stage.drain(job).code == 0, job.error
    before = stage.written()
    for check in (RETRACT_BY_KEY, UPSERT):
        stage.query(check.name, check.sink["sql"] + " WHERE p.method <> 'card'")
    with stage.job("--upgrade") as job:
        stage.while_filling(job)
        job.kill()
    assert stage.written() == before
    stage.manipulate(0.3)
    with stage.job("--upgrade") as job:
        stage.catch_up(job)
        assert job.error.count("was updated; changes written: ") == 2, job.error
        stage.manipulate(0.2)
        stage.catch_up(job)
        assert stage.drain(job).code == 0, job.error
        assert "Traceback" not in job.error
    stage.validate()
    # Rows paid by card were written once and retracted once.
    assert stage.results[UPSERT.name].kinds["delete"] > before[UPSERT.name].total() / 5
    assert not stage.filling_topics()
