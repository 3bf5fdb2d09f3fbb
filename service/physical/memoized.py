"""Caching of function results on plan nodes. Nodes never change, so the results remain valid."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

_Node = TypeVar("_Node")
_Found = TypeVar("_Found")


def memoized(find: Callable[[_Node], _Found]) -> Callable[[_Node], _Found]:
    """Cache a function's result on the node that is the argument. Callers share the result and must not change it."""
    name = f"_remembered_{find.__module__}_{find.__name__}"

    @wraps(find)
    def found(node: _Node) -> _Found:
        # This bypasses the frozen dataclass. The dataclass's fields, equality and copies ignore the entry.
        known: dict[str, Any] = vars(node)
        if name not in known:
            known[name] = find(node)
        result: _Found = known[name]
        return result

    return found
