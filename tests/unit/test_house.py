"""The limits of how the code is built: what a change of structure has won is not lost again."""

from __future__ import annotations

from tests.house import House

MOST_MATCHES = 30
MOST_ARMS = 130


def test_nodes_are_known_by_their_shapes() -> None:
    """Few `match` statements know nodes of plans by name, with few arms: the rest goes by shapes and tables."""
    found = list(House().matches())
    assert len(found) <= MOST_MATCHES, found
    assert sum(arms for _, arms in found) <= MOST_ARMS, found
