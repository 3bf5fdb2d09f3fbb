"""A key of an upsert topic with rows in several partitions is a difference, whichever of its rows is right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Rows
from rowkind.service.client.external_table import readable_topic
from rowkind.service.plan.pipeline import source_table
from rowkind.service.verify.compare import AuditedPart
from rowkind.service.verify.judgement import SinkAudit
from rowkind.service.verify.report import document, lines
from tests.unit.verify.judged import SUMS, Case, Opened, Row, item, outcome, packed, total

Written = tuple[int, int, Row]
"""A record of the result's topic: its partition, its offset, and its row."""

ITEMS = (item("a", 1), item("a", 2), item("b", 3))
RIGHT: Sequence[Written] = ((0, 7, total("a", 1, 2)), (1, 3, total("b", 3)))


def audited(case: Case, *written: Written, deleted: Sequence[int] = ()) -> SinkAudit:
    """Return the audit of a topic with these records. `deleted`: the numbers of the records that delete the row."""
    job = case.topics.job
    partitions, offsets, rows = zip(*written, strict=True)
    changes = packed(readable_topic(job, "result").declared, rows)
    kinds = np.where(np.isin(np.arange(len(rows)), deleted), RowKind.DELETE, RowKind.UPDATE_AFTER).astype(np.int8)
    result = Rows(kinds, ArrivalNumber.pack(np.array(offsets), np.array(partitions)), changes.payload)
    return case.judge(packed(source_table(job, "items").declared, ITEMS), result)


@pytest.mark.parametrize("wrong", [total("a", 9), total("a", 1, 2)], ids=["a wrong row", "a right row"])
@pytest.mark.parametrize("last", [True, False], ids=["read last", "read first"])
def test_each_row_of_a_split_key_is_reported_with_its_place(wrong: Row, opened: Opened, *, last: bool) -> None:
    """Both rows are reported beside the expected one, whatever partition is read last."""
    case, planted = opened(SUMS), (1, 2, wrong)
    assert outcome(audited(case, *RIGHT)) == ("ok", 2, 0, 0, 0)
    found = audited(case, *([*RIGHT, planted] if last else [planted, *RIGHT]))
    assert outcome(found) == ("differs", 1, 2, 0, 0)
    assert found.compared.split == 1
    (note,) = found.notes
    assert note.startswith("1 key has rows in several partitions of the topic. Which row counts depends on the ")
    places = [(each.expected, each.found, each.partition, each.offset) for each in found.compared.first]
    assert places == [(total("a", 1, 2), total("a", 1, 2), 0, 7), (total("a", 1, 2), wrong, 1, 2)]
    (line,) = document([found])
    assert [(each["partition"], each["offset"]) for each in json.loads(line)["first"]] == [(0, 7), (1, 2)]
    assert [place for place in ("result/0@7", "result/1@2") if any(place in each for each in lines([found]))] == [
        "result/0@7",
        "result/1@2",
    ]


def test_a_key_that_has_been_deleted_in_the_other_partition_is_right(opened: Opened) -> None:
    """After a topic has gained partitions, `--upgrade` deletes the row in the old partition. The key is not split."""
    moved, deleted = (1, 4, total("a", 1, 2)), (0, 8, total("a", 1, 2))
    for records in ([*RIGHT, moved, deleted], [*RIGHT, deleted, moved], [moved, *RIGHT, deleted]):
        found = audited(opened(SUMS), *records, deleted=[records.index(deleted)])
        assert (outcome(found), found.compared.split) == (("ok", 2, 0, 0, 0), 0)


def test_a_split_key_is_found_among_rows_in_doubt_and_in_a_part(opened: Opened) -> None:
    """It does not depend on rows that may have expired. Rows that are not compared do not count."""
    case = opened(SUMS, ttl="10s")
    case.batches = [(2, 0), (1, 20_000)]
    found = audited(case, *RIGHT, (1, 2, total("a", 1, 2)))
    assert (found.verdict, found.compared.split, found.compared.different) == ("differs", 1, 2)
    recent = replace(case, part=AuditedPart(since="1970-01-01T00:00:01+00:00"))
    found = audited(recent, *RIGHT, (1, 2, total("a", 1, 2)))
    assert (found.compared.different, found.compared.first[0].partition) == (1, 1)
    old = replace(case, part=AuditedPart(since="1980-01-01T00:00:00+00:00"))
    assert audited(old, *RIGHT, (1, 2, total("a", 1, 2))).compared.split == 0
