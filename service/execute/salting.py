"""Salted keys: the rows of one key dealt out to several shards, where each meets a copy of what it may match.

A join of a large input with a hot key and another one: the rows of the large one are dealt out by what tells them
apart, so that a row and its retraction still meet, and those of the other go to each of these shards. Both have keys
with a number, the salt, behind them, which are different keys to whoever takes them in.

(Salting is an old trick of batch jobs; Databricks' SKEW hint does it for Spark's batch joins.)
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
    """The changes under salted keys: each under one of them, or a copy under each. Those with key NULL stay as is."""
    if salt.deal == "copies":
        return Changes.concat([_under(changes, np.full(len(changes), number)) for number in range(salt.count)])
    told_apart = changes.sub_key if salt.deal == "by sub-key" else changes.payload
    return _under(changes, ((hash64(told_apart) >> _HIGH) % np.uint64(salt.count)).astype(np.int64))


def _under(changes: Changes, salts: Int64s) -> Changes:
    """The changes with these salts behind their keys, in shards that follow each other from the key's own on."""
    behind = pa.array([number.to_bytes(2, "big") for number in range(MOST_SALTS)]).take(pa.array(salts))
    key = pc.binary_join_element_wise(changes.key, behind.cast(pa.binary()), constant(b"", 1)[0])
    low = (changes.hash + salts.astype(np.uint64)) & _LOW
    hashes = np.where(
        key.is_valid().to_numpy(zero_copy_only=False), (hash64(key.fill_null(b"")) & ~_LOW) | low, changes.hash
    )
    return replace(changes, key=key, hash=hashes)
