"""Lay out a graph in layers from left to right: the positions of its nodes, and the curves of its edges.

The layer of a node is the length of the longest path that leads to it. An edge that crosses layers gets an invisible
node in each of them, so that no edge passes through a node. Nodes of a layer are ordered by the mean position of their
neighbors, in several sweeps. Then each node moves as close to the mean height of its neighbors as the nodes above and
below it allow.

All lengths are in CSS pixels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_WIDEST, _NARROWEST = 236.0, 184.0
_WHOLE = 1_210.0
"""The width of a graph that fits a common window. With more layers, nodes are narrower, but stay readable."""

_HEIGHT = 84.0
_COLUMN_GAP, _ROW_GAP = 76.0, 18.0
_BEND_HEIGHT = 10.0
_PORT_GAP = 20.0
_LEVEL = 3.0
"""The difference in height up to which an edge is taken for level."""
_TWO_TEXTS = 27.0
"""The distance of two edges between which there is room for two texts."""
_SWEEPS = 8

EdgeEnds = tuple[str, str]
"""The source and the target of an edge."""


@dataclass(frozen=True)
class PlacedNode:
    """A node's left upper corner, and its height."""

    x: float
    y: float
    height: float


@dataclass(frozen=True)
class PlacedEdge:
    """An edge as an SVG path, and the point at which it reaches its target.

    `text_below`: whether a text at the end belongs below the edge, because the edge comes from above.
    """

    path: str
    x: float
    y: float
    text_below: bool


@dataclass(frozen=True)
class GraphLayout:
    """The layout of a graph, its size, and the width of its nodes."""

    width: float
    height: float
    node_width: float
    nodes: Mapping[str, PlacedNode]
    edges: Mapping[EdgeEnds, PlacedEdge]


def lay_out(nodes: Sequence[str], edges: Sequence[EdgeEnds]) -> GraphLayout:
    """Lay out an acyclic graph. Equal graphs have equal layouts."""
    return _Layout(nodes, edges).done()


@dataclass
class _Layout:
    names: Sequence[str]
    edges: Sequence[EdgeEnds]
    layers: list[list[str]] = field(default_factory=list)
    above: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    below: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    chains: dict[EdgeEnds, list[str]] = field(default_factory=dict)
    heights: dict[str, float] = field(default_factory=dict)
    middles: dict[str, float] = field(default_factory=dict)
    node_width: float = _WIDEST

    def done(self) -> GraphLayout:
        layer = self._layer()
        count = max(layer.values(), default=-1) + 1
        self.layers = [[] for _ in range(count)]
        self.node_width = min(_WIDEST, max(_NARROWEST, (_WHOLE + _COLUMN_GAP) / max(1, count) - _COLUMN_GAP))
        column = self.node_width + _COLUMN_GAP
        for name in sorted(self.names, key=lambda name: layer[name]):
            self.layers[layer[name]].append(name)
            ports = sum(target == name for _, target in self.edges)
            self.heights[name] = max(_HEIGHT, _PORT_GAP * (ports + 1))
        for edge in self.edges:
            self._chain(edge, layer)
        self._order()
        self._straighten()
        placed = {
            name: PlacedNode(at * column, self.middles[name] - self.heights[name] / 2, self.heights[name])
            for at, names in enumerate(self.layers)
            for name in names
            if name in layer
        }
        width = count * column - _COLUMN_GAP if count else 0.0
        height = max((each.y + each.height for each in placed.values()), default=0.0)
        return GraphLayout(width, height, self.node_width, placed, dict(self._curves(placed)))

    def _layer(self) -> dict[str, int]:
        """Return each node's layer."""
        sources: dict[str, list[str]] = defaultdict(list)
        for source, target in self.edges:
            sources[target].append(source)
        layer: dict[str, int] = {}

        def visit(name: str) -> int:
            if name not in layer:
                layer[name] = max((visit(each) + 1 for each in sources[name]), default=0)
            return layer[name]

        for name in self.names:
            visit(name)
        return layer

    def _chain(self, edge: EdgeEnds, layer: Mapping[str, int]) -> None:
        """Connect an edge's ends by an invisible node in each layer between them."""
        source, target = edge
        chain = [source]
        for at in range(layer[source] + 1, layer[target]):
            bend = f"{source}\n{target}\n{at}"
            self.layers[at].append(bend)
            self.heights[bend] = _BEND_HEIGHT
            chain.append(bend)
        chain.append(target)
        self.chains[edge] = chain
        for left, right in pairwise(chain):
            self.below[left].append(right)
            self.above[right].append(left)

    def _order(self) -> None:
        """Order the nodes of each layer so that few edges cross."""
        for sweep in range(_SWEEPS):
            forward = sweep % 2 == 0
            layers = self.layers[1:] if forward else self.layers[-2::-1]
            near = self.above if forward else self.below
            for layer in layers:
                places = {name: place for each in self.layers for place, name in enumerate(each)}
                means = {name: _mean([places[each] for each in near[name]], places[name]) for name in layer}
                layer.sort(key=means.__getitem__)

    def _straighten(self) -> None:
        for layer in self.layers:
            top = 0.0
            for name in layer:
                self.middles[name] = top + self.heights[name] / 2
                top += self.heights[name] + _ROW_GAP
        for sweep in range(_SWEEPS):
            forward = sweep % 2 == 0
            near = self.above if forward else self.below
            for layer in self.layers if forward else reversed(self.layers):
                self._align(layer, near)
        first = min((self.middles[each] - self.heights[each] / 2 for each in self.heights), default=0.0)
        self.middles = {name: middle - first for name, middle in self.middles.items()}

    def _align(self, layer: Sequence[str], near: Mapping[str, Sequence[str]]) -> None:
        """Move the nodes of a layer to the mean heights of their neighbors, as closely as their order allows.

        This is an isotonic regression: neighbors that would overlap form a group, which moves to its mean.
        """
        offset, groups = 0.0, list[tuple[float, list[tuple[str, float]]]]()
        for name in layer:
            offset += self.heights[name] / 2
            wish = _mean([self.middles[each] for each in near.get(name, ())], self.middles[name]) - offset
            groups.append((wish, [(name, offset)]))
            while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
                (right, second), (left, first) = groups.pop(), groups.pop()
                mean = (left * len(first) + right * len(second)) / (len(first) + len(second))
                groups.append((mean, first + second))
            offset += self.heights[name] / 2 + _ROW_GAP
        for wish, members in groups:
            self.middles |= {name: wish + own for name, own in members}

    def _curves(self, placed: Mapping[str, PlacedNode]) -> Sequence[tuple[EdgeEnds, PlacedEdge]]:
        """Return the curve of each edge. The edges into a node end at ports, one below the other."""
        ports: dict[str, list[EdgeEnds]] = defaultdict(list)
        for edge in self.edges:
            ports[edge[1]].append(edge)
        found: list[tuple[EdgeEnds, PlacedEdge]] = []
        for target, edges in ports.items():
            node = placed[target]
            edges.sort(key=lambda each: self.middles[self.chains[each][-2]])
            gap, below, first = node.height / (len(edges) + 1), True, len(found)
            for number, edge in reversed(list(enumerate(edges, 1))):
                end = node.y + gap * number
                descends = self.middles[self.chains[edge][-2]] < end - _LEVEL
                # Without room for both, the text may not meet one that is above the next edge.
                below = descends and (below or gap >= _TWO_TEXTS)
                found.insert(first, (edge, PlacedEdge(self._path(edge, placed, end), node.x, end, below)))
        return found

    def _path(self, edge: EdgeEnds, placed: Mapping[str, PlacedNode], end: float) -> str:
        source, *bends, target = self.chains[edge]
        x, y = placed[source].x + self.node_width, self.middles[source]
        path = f"M{x:.0f} {y:.1f}"
        for bend in [*bends, target]:
            to = end if bend == target else self.middles[bend]
            half = x + _COLUMN_GAP / 2
            x += _COLUMN_GAP
            path += f"C{half:.0f} {y:.1f} {half:.0f} {to:.1f} {x:.0f} {to:.1f}"
            if bend != target:
                x += self.node_width
                path += f"H{x:.0f}"
            y = to
        return path


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
