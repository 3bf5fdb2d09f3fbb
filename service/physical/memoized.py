"""What has been found out about a node stays with it: nodes never change, and are asked again by every pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

_Node = TypeVar("_Node")
_Found = TypeVar("_Found")


def memoized(find: Callable[[_Node], _Found]) -> Callable[[_Node], _Found]:
    """The same function of a node, computed once for each; the result is shared, and must not be changed."""
    name = f"_remembered_{find.__module__}_{find.__name__}"

    @wraps(find)
    def found(node: _Node) -> _Found:
        # Past the frozen dataclass, whose fields, equality and copies know nothing of it.
        known: dict[str, Any] = vars(node)
        if name not in known:
            known[name] = find(node)
        result: _Found = known[name]
        return result

    return found
