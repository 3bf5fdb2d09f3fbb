"""The tools of the end-to-end tests are checked before the tests rely on them."""

from __future__ import annotations

import pytest

from tests.e2e.containers import KafkaContainer
from tests.e2e.kcat import Kcat

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("containers")]


def test_kcat_gives_back_the_bytes_nulls_and_headers_that_it_sent(kafka: KafkaContainer, kcat: str) -> None:
    """Keys and values with line ends and zero bytes survive kcat and the broker, and an empty value becomes null."""
    kafka.create_topics(1, "clients")
    client = Kcat(kcat, kafka.address)
    client.produce("clients", [(b"\x00\x01\n", b"\n\t\xff"), (b"k", b"")], {"op": "+I"})
    client.produce("clients", [(b"k", b"v")], {"op": "-U", "trace": "x"})
    received = client.consume("clients")
    assert [(m.key, m.value) for m in received] == [(b"\x00\x01\n", b"\n\t\xff"), (b"k", None), (b"k", b"v")]
    assert [m.headers for m in received] == [{"op": "+I"}, {"op": "+I"}, {"op": "-U", "trace": "x"}]
