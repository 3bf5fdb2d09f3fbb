"""Salted keys: the rows of one key are dealt out to several shards, and each shard has a copy of the matching rows.

This serves a join of a large input that has a hot key with another input. Rows of the large input are dealt out by
their sub-key or row, so that a row and its retraction still meet. Rows of the other input are copied to each of these
shards. Both keys get a number, the salt, appended, which makes them different keys to the consumer. (Salting is an old
trick of batch jobs. Databricks' SKEW hint does it for Spark's batch joins.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.columns.changes import Changes, Int64s, constant
from rowkind.operators.columns.hashing import hash64
from rowkind.service.physical.keys import MOST_SALTS, Salt

_LOW = np.uint64(MOST_SALTS - 1)
_HIGH = np.uint64(32)


def salted(salt: Salt, changes: Changes) -> Changes:
    """Return the changes under salted keys: each under one salt, or a copy under each. NULL keys are not salted."""
    if salt.deal == "copies":
        return Changes.concat([_under(changes, np.full(len(changes), number)) for number in range(salt.count)])
    told_apart = changes.sub_key if salt.deal == "by sub-key" else changes.payload
    return _under(changes, ((hash64(told_apart) >> _HIGH) % np.uint64(salt.count)).astype(np.int64))


def _under(changes: Changes, salts: Int64s) -> Changes:
    """Return the changes with these salts appended to their keys, in consecutive shards starting at the key's own."""
    behind = pa.array([number.to_bytes(2, "big") for number in range(MOST_SALTS)]).take(pa.array(salts))
    key = pc.binary_join_element_wise(changes.key, behind.cast(pa.binary()), constant(b"", 1)[0])
    low = (changes.hash + salts.astype(np.uint64)) & _LOW
    hashes = np.where(
        key.is_valid().to_numpy(zero_copy_only=False), (hash64(key.fill_null(b"")) & ~_LOW) | low, changes.hash
    )
    return replace(changes, key=key, hash=hashes)
