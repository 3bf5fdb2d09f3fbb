"""Spellings of row kinds, and dead letters in blocks and headers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException

from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.block import Block
from rowkind.operators.columns.changes import binary
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.kafka.errors import FencedError, MissingTopicError, RefusedError, UnreachableError, translate
from rowkind.service.kafka.headers import MISSING, UNKNOWN, Headers, row_kinds
from rowkind.service.kafka.spec import OPTION
from rowkind.service.physical.row_kind import PRESETS, RowKindHeader, spellings


def test_every_preset_can_be_written_and_is_read_back_as_what_it_can_say() -> None:
    """In a preset without a word for a row kind, -U is written as a deletion and +U as an insertion."""
    sign = [1, -1, 1, -1]
    for name, values in PRESETS.items():
        for kind, word in enumerate(spellings(values)):
            assert sign[values[word]] == sign[kind], name
    assert spellings(PRESETS["rowkind"]) == (b"+I", b"-U", b"+U", b"-D")
    assert spellings(PRESETS["ordinal"]) == (b"0", b"1", b"2", b"3")


def test_a_spelling_without_a_delete_cannot_be_written() -> None:
    """A header without a spelling for -D is refused, because deletions would be lost."""
    with pytest.raises(ValueError, match="-D"):
        spellings({b"+I": 0})


def test_a_dead_letter_is_the_same_after_its_journey() -> None:
    """Nulls, empty bytes and repeated headers of a dead letter survive serialization."""
    letter = DeadLetter(
        "orders", "value", "UndecodableRowError", "why", "t", 1, 2, 3, b"", None, (("a", None), ("a", b""))
    )
    block = Block(Batch.of_letters(binary([letter.to_bytes()])))
    batch = Block.from_bytes(block.to_bytes()).batch
    assert [DeadLetter.from_bytes(payload) for payload in batch.letters.to_pylist()] == [letter]
    assert len(batch) == 1


def test_a_dead_letter_without_an_origin_claims_none() -> None:
    """A dead letter without a source record has no header that names a topic."""
    headers = DeadLetter("orders", "changelog", "Unmatched", "why").written_headers("job", "sink")
    assert headers is not None
    assert "__connect.errors.topic" not in dict(headers)


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (KafkaError._ALL_BROKERS_DOWN, UnreachableError),
        (KafkaError._TIMED_OUT, UnreachableError),
        (KafkaError._AUTHENTICATION, RefusedError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, RefusedError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, MissingTopicError),
        (KafkaError._FENCED, FencedError),
        (KafkaError.INVALID_PRODUCER_EPOCH, FencedError),
    ],
)
def test_a_clients_exception_is_translated_at_the_edge(code: int, meaning: type[Exception]) -> None:
    """Each error code of the Kafka client becomes one exception, with the action that failed."""
    error = translate(KafkaException(KafkaError(code)), "here:9092", "reading topic orders")
    assert type(error) is meaning
    assert "reading topic orders" in str(error)


def test_the_option_with_the_spec_is_one_that_spark_redacts() -> None:
    """The option with the spec has a name that Spark redacts, so that passwords do not show in a plan or in the UI."""
    assert "secret" in OPTION


def test_headers_are_the_same_as_columns_and_as_lists() -> None:
    """Random headers survive the change of form, a selection in any order, and concatenation with other names."""
    rng = random.Random(3)
    for _ in range(200):
        lists = [
            [(rng.choice("abc"), rng.choice([b"", b"x", None])) for _ in range(rng.randrange(4))]
            for _ in range(rng.randrange(6))
        ]
        other = [[(rng.choice("cd"), b"y")] for _ in range(rng.randrange(3))]
        headers = Headers.of(lists)
        assert list(headers) == [headers[record] for record in range(len(headers))] == lists
        assert bool(headers) == any(lists)
        order = [rng.randrange(len(lists)) for _ in range(4)] if lists else []
        assert list(headers.take(np.array(order, np.int64))) == [lists[record] for record in order]
        assert list(Headers.concat([headers, Headers.none(2), Headers.of(other)])) == [*lists, [], [], *other]
        records, values = headers.last("a")
        found = dict(zip(records.tolist(), values.to_pylist(), strict=True))
        assert found == {at: dict(each)["a"] for at, each in enumerate(lists) if "a" in dict(each)}


def test_the_last_row_kind_header_counts() -> None:
    """A record without the header has no kind, and an undefined word is unknown."""
    records = [[("op", b"-D"), ("op", b"+U")], None, [("x", b"+I")], [("op", None)], [("op", b"?")], [("op", b"+I")]]
    kinds = row_kinds(Headers.of(records), RowKindHeader())
    assert kinds.tolist() == [2, MISSING, MISSING, UNKNOWN, UNKNOWN, 0]
