"""Salted keys, which spread rows with the same key over several shards, each with a copy of the matching rows.

Salting is for a join in which a large input has a hot key. Rows of the large input are distributed over shards by their
sub-key or by the whole row, so that a row and its retraction still go to the same shard. Rows of the other input are
copied to each of these shards. A number, the salt, is appended to the keys of both inputs, so that the consumer sees a
different key in each shard. (Salting is an old technique for batch jobs. Databricks' SKEW hint applies it to Spark's
batch joins.)
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
    """Return the changes with salted keys: either each change once, or one copy per salt. NULL keys are not salted."""
    if salt.deal == "copies":
        return Changes.concat([_under(changes, np.full(len(changes), number)) for number in range(salt.count)])
    told_apart = changes.sub_key if salt.deal == "by sub-key" else changes.payload
    return _under(changes, ((hash64(told_apart) >> _HIGH) % np.uint64(salt.count)).astype(np.int64))


def _under(changes: Changes, salts: Int64s) -> Changes:
    """Append salts to the keys of changes. Their shards are consecutive, starting at the shard of the original key."""
    behind = pa.array([number.to_bytes(2, "big") for number in range(MOST_SALTS)]).take(pa.array(salts))
    key = pc.binary_join_element_wise(changes.key, behind.cast(pa.binary()), constant(b"", 1)[0])
    low = (changes.hash + salts.astype(np.uint64)) & _LOW
    hashes = np.where(
        key.is_valid().to_numpy(zero_copy_only=False), (hash64(key.fill_null(b"")) & ~_LOW) | low, changes.hash
    )
    return replace(changes, key=key, hash=hashes)
