"""An operator that plays the subjects of the laws, so that many run in one query, each on a shard of its own."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from operators.changes import Changes, RowKind, Rows, binary
from operators.operator import Output
from operators.store import BlobStore
from tests.laws.laws import exactly
from tests.laws.subjects import SUBJECTS, Subject
from tests.oracle.inputs import Batches


def scripted(subject: Subject) -> Batches:
    """Random batches and one that takes back every row that is there then."""
    batches = subject.batches(f"{subject}, on RocksDB", batches=3)
    return [*batches, subject.retracting(batches)]


def told(output: Output) -> bytes:
    """All that an operator gave, as one payload."""
    rows, unmatched = exactly(output)
    return pickle.dumps((sorted(rows.items()), sorted(unmatched.items()), output.state))


@dataclass(frozen=True)
class Replay:
    """Takes the number of a subject and of a batch as payload, and puts out what the subject's operator gives."""

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """Those of the subjects."""
        names = {name for subject in SUBJECTS for name in subject.operator.arrangements}
        return dict.fromkeys(sorted(names))

    def process(self, changes: Changes, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Play one batch of one subject; its clock is the batch's number, not `now`."""
        assert now > 0
        number, batch = map(int, changes.payload[0].as_py().split(b"|"))
        subject = SUBJECTS[number]
        output = subject.operator.process(subject.columns(scripted(subject)[batch]), stores, now=batch)
        row = Rows(np.array([RowKind.INSERT], np.int8), changes.seq, binary([b"%d|" % number + told(output)]))
        return Output(row, Changes.empty(), output.state)
