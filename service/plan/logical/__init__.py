"""The logical plan: what the query means, as a tree of frozen nodes that passes rewrite."""

from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import (
    LogicalExpand,
    LogicalFilter,
    LogicalProject,
    LogicalScan,
    LogicalUnion,
    LogicalWindow,
)
from rowkind.service.plan.logical.grouping import LogicalAggregate, LogicalMatch
from rowkind.service.plan.logical.node import (
    LogicalBinary,
    LogicalCalc,
    LogicalGrouping,
    LogicalInput,
    LogicalNode,
    LogicalPerRow,
    LogicalSubset,
    LogicalUnary,
    Types,
)
from rowkind.service.plan.logical.per_row import LogicalOver, LogicalSession, LogicalStamp
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalRank, LogicalTemporalFilter

__all__ = [
    "LogicalAggregate",
    "LogicalBinary",
    "LogicalCalc",
    "LogicalExpand",
    "LogicalFilter",
    "LogicalGrouping",
    "LogicalInput",
    "LogicalJoin",
    "LogicalLookup",
    "LogicalMatch",
    "LogicalNode",
    "LogicalNormalize",
    "LogicalOver",
    "LogicalPerRow",
    "LogicalProject",
    "LogicalRank",
    "LogicalScan",
    "LogicalSession",
    "LogicalStamp",
    "LogicalSubset",
    "LogicalTemporalFilter",
    "LogicalUnary",
    "LogicalUnion",
    "LogicalWindow",
    "Types",
]
