"""The layout of a graph on the status page."""

from __future__ import annotations

import random
import re
from itertools import combinations, pairwise

import pytest

from rowkind.service.web.graph_layout import GraphLayout, PlacedNode, lay_out


def test_rows_flow_from_left_to_right() -> None:
    """A target is to the right of all its sources, and a node with a single source is on its source's height."""
    layout = lay_out(["a", "b", "join", "sink"], [("a", "join"), ("b", "join"), ("join", "sink"), ("a", "sink")])
    x = {name: node.x for name, node in layout.nodes.items()}
    assert x["a"] == x["b"] < x["join"] < x["sink"]
    chain = lay_out(["a", "b", "c"], [("a", "b"), ("b", "c")])
    assert {node.y for node in chain.nodes.values()} == {0}


def test_two_tables_and_two_sinks_do_not_cross() -> None:
    """Nodes are ordered so that edges cross only if they must."""
    layout = lay_out(["a", "b", "y", "x"], [("a", "x"), ("b", "y")])
    heights = {name: node.y for name, node in layout.nodes.items()}
    assert (heights["a"] < heights["b"]) == (heights["x"] < heights["y"])


@pytest.mark.parametrize("seed", range(20))
def test_no_two_nodes_overlap_and_no_edge_crosses_a_node(seed: int) -> None:
    """In random graphs, nodes are apart, all edges start and end at their nodes, and none passes through another."""
    chance = random.Random(seed)
    names = [f"n{number}" for number in range(chance.randint(1, 40))]
    edges = [
        (names[source], names[target])
        for target in range(len(names))
        for source in {chance.randrange(target) for _ in range(chance.randint(1, 3)) if target}
    ]
    layout = lay_out(names, edges)
    assert set(layout.nodes) == set(names)
    assert set(layout.edges) == set(edges)
    for one, other in combinations(layout.nodes.values(), 2):
        assert one.x != other.x or one.y + one.height <= other.y or other.y + other.height <= one.y
    for (source, target), edge in layout.edges.items():
        start, *_, end = points(edge.path)
        assert start[0] == round(layout.nodes[source].x + layout.node_width)
        assert end == (round(layout.nodes[target].x), round(edge.y, 1))
        for name in set(names) - {source, target}:
            assert not passes(edge.path, layout.nodes[name], layout), f"{source} to {target} passes through {name}"


@pytest.mark.parametrize("sources", range(1, 9))
def test_texts_at_the_ends_of_edges_do_not_overlap(sources: int) -> None:
    """A text of 9 px above or below the end of each edge does not touch the text of another edge into the node."""
    tables = [f"t{number}" for number in range(sources)]
    layout = lay_out([*tables, "x", "y"], [(each, sink) for each in tables for sink in ("x", "y")])
    for sink in ("x", "y"):
        ends = sorted((edge.y, edge.text_below) for (_, target), edge in layout.edges.items() if target == sink)
        texts = [end + (4 if below else -14) for end, below in ends]
        assert all(second - first >= 9 for first, second in pairwise(texts))


def test_the_text_of_an_edge_from_above_is_below_its_end() -> None:
    """In a graph in which two tables are joined twice, no edge passes through its own text."""
    layout = lay_out(["a", "b", "x", "y"], [(table, join) for table in "ab" for join in "xy"])
    assert layout.edges["a", "y"].text_below
    assert not layout.edges["b", "x"].text_below


def test_many_inputs_make_a_node_higher() -> None:
    """The edges into a node end at different heights, at least 15 px apart."""
    tables = [f"t{number}" for number in range(12)]
    layout = lay_out([*tables, "union"], [(each, "union") for each in tables])
    ends = sorted(edge.y for edge in layout.edges.values())
    assert min(high - low for low, high in pairwise(ends)) > 15
    assert layout.height >= layout.nodes["union"].height


def test_more_layers_make_nodes_narrower() -> None:
    """A graph of five layers fits a window of 1300 px; a deeper one keeps its nodes readable."""
    for layers, most in ((5, 1_230), (12, 3_200)):
        names = [f"n{number}" for number in range(layers)]
        layout = lay_out(names, list(pairwise(names)))
        assert layout.width <= most
        assert layout.node_width >= 184


def test_a_graph_without_nodes_is_empty() -> None:
    """A graph without nodes has no size."""
    assert (lay_out([], []).width, lay_out([], []).height) == (0, 0)


def points(path: str) -> list[tuple[float, float]]:
    """Return the points of a path, including control points; a horizontal line has the height of its start."""
    found: list[tuple[float, float]] = []
    for command, numbers in re.findall(r"([MCH])([^MCH]*)", path):
        values = [float(each) for each in numbers.split()]
        if command == "H":
            found.append((values[0], found[-1][1]))
        else:
            found += zip(values[::2], values[1::2], strict=True)
    return found


def passes(path: str, node: PlacedNode, layout: GraphLayout) -> bool:
    """Return whether a horizontal part of a path, which crosses a layer, meets a node of this layer."""
    at = (0.0, 0.0)
    for command, numbers in re.findall(r"([MCH])([^MCH]*)", path):
        values = [float(each) for each in numbers.split()]
        if command == "H":
            inside = at[0] - 1 <= node.x <= values[0] + 1 and node.x + layout.node_width <= values[0] + 1
            if inside and node.y < at[1] < node.y + node.height:
                return True
            at = (values[0], at[1])
        else:
            at = (values[-2], values[-1])
    return False
