"""The writer over a real broker: what stands in the topic afterwards, in each form of a sink."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from avro.registry import FolderRegistry
from service.dev.broker import Broker
from tests.kafka.sinks import Sink, changes, make_sink
from tests.kafka.tables import order

pytestmark = pytest.mark.kafka


@pytest.fixture
def sink(broker: Broker, new_topic: Callable[..., str], schemas: FolderRegistry, tmp_path: Path) -> Callable[..., Sink]:
    """Makes a sink over a fresh topic."""
    return lambda **changed: make_sink(broker, new_topic, schemas, tmp_path, **changed)


def test_a_retract_topic_has_the_old_row_before_the_new_one(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion and insertion of one key in a batch become -U and +U, next to each other, with full rows."""
    retract = sink()
    retract.write(changes(("+I", order(1, "a")), ("+I", order(2, "b"))), batch=0, monkeypatch=monkeypatch)
    retract.write(
        changes(("+I", order(1, "c")), ("-D", order(1, "a")), ("-D", order(2, "b"))), batch=1, monkeypatch=monkeypatch
    )
    assert retract.ops() == [
        ("+I", order(1, "a")),
        ("+I", order(2, "b")),
        ("-D", order(2, "b")),
        ("-U", order(1, "a")),
        ("+U", order(1, "c")),
    ]
