"""The operator of each stateful node of a plan, as every engine runs it."""

from __future__ import annotations

from avro.codec import null_row
from operators.join import Join, JoinSpec, Side
from operators.operator import Operator
from service.calc import condition
from service.plan import physical
from service.plan.physical import Input, Scan


def operator(node: physical.Join) -> Operator:
    """What runs over the shards of `node`; it pickles."""
    left, right = node.left.calc.output, node.right.calc.output
    return Join(
        JoinSpec(
            kind=node.kind,
            left=_side(node.left, node.left_input),
            right=_side(node.right, node.right_input),
            condition=condition(node.condition, left, right) if node.condition else None,
            left_pad=null_row(left) if node.kind in {"right", "full"} else b"",
            right_pad=null_row(right) if node.kind in {"left", "full"} else b"",
        )
    )


def _side(node: physical.Node, chosen: Input) -> Side:
    """A delete of a row that an upsert topic never had is nothing unusual there, and not counted."""
    upsert = isinstance(node, Scan) and node.mode == "upsert"
    return Side(chosen.layout, chosen.ttl_ms, chosen.by_seq, counts_unmatched=not upsert)
