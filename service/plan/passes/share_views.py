"""Plan a shared view with state separately from its uses, so that it exists only once.

Otherwise each use would push its own filters and columns into the view, and the uses would differ. The view contains
only the columns that at least one use reads. Two kinds of views are not shared: a view that only filters and projects
tables has no state to share, and a view with a window on top needs the bounds that its uses set.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from rowkind.service.plan.logical.calc import LogicalProject, LogicalScan, LogicalUnion, LogicalWindow
from rowkind.service.plan.logical.node import LogicalCalc, LogicalNode
from rowkind.service.plan.logical.per_row import LogicalStamp
from rowkind.service.plan.query import Query
from rowkind.service.plan.tree import bottom_up, inputs, walk

Kept = Mapping[str, frozenset[int]]
"""The views that are planned separately, each with the positions of its columns that are read."""


def shared_views(queries: Sequence[Query]) -> list[str]:
    """Return the names of the views with state that are used more than once.

    A use inside another view counts once, however often that other view is used.
    """
    uses: Counter[str] = Counter()
    seen: dict[str, LogicalProject] = {}

    def look(node: LogicalNode) -> None:
        view = node.view if isinstance(node, LogicalProject) else None
        if view is not None:
            uses[view.name] += 1
            if view.name in seen:
                return
            assert isinstance(node, LogicalProject), "only they are views"
            seen[view.name] = node
        for each in inputs(node):
            look(each)

    for query in queries:
        look(query.root)
    return sorted(name for name, node in seen.items() if uses[name] > 1 and _keeps(node.input))


def share_views(query: Query, kept: Kept) -> Query:
    """Return the query, with the views in `kept` marked to be planned separately."""
    return replace(query, root=bottom_up(query.root, partial(_marked, kept)))


def columns_read(queries: Sequence[Query]) -> dict[str, frozenset[int]]:
    """Return the positions of the columns that are read from each separately planned view, after column pruning."""
    found: dict[str, frozenset[int]] = defaultdict(frozenset)
    for query in queries:
        for node in walk(query.root):
            if isinstance(node, LogicalProject) and node.view is not None and node.stands:
                places = (place for place, name in enumerate(node.view.columns) if name in node.outputs)
                found[node.view.name] |= frozenset(places)
    return dict(found)


def _marked(kept: Kept, node: LogicalNode) -> LogicalNode:
    if isinstance(node, LogicalProject) and node.view is not None and node.view.name in kept:
        return replace(node, view=replace(node.view, kept=kept[node.view.name]))
    return node


def _keeps(node: LogicalNode) -> bool:
    """Whether a node or a node below it has state, with no window above the state."""
    if isinstance(node, LogicalScan | LogicalWindow):
        return False
    plain = isinstance(node, LogicalCalc | LogicalStamp | LogicalUnion)
    return not plain or all(map(_keeps, inputs(node)))
