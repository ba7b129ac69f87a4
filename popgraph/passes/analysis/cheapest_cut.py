"""Minimum cuts of directed graphs whose nodes have costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Node = TypeVar("Node", bound=Hashable)

UNBOUNDED = float("inf")


@dataclass
class CheapestCut(Generic[Node]):
    """
    Nodes of a directed acyclic graph to remove, so that no path leads from `sources` to `sinks`.

    Their total cost is minimal, and among equal cuts they are closest to the sinks. A source or
    sink may itself be removed. The maximum flow is Dinic's: O(V^2 E), in practice one short search
    for each removed node.
    """

    costs: Mapping[Node, float]
    readers: Mapping[Node, Iterable[Node]]
    """The successors of each node."""
    sources: Iterable[Node]
    sinks: Iterable[Node]
    _left: list[float] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _edges: list[list[int]] = field(default_factory=list)
    """The edges of each vertex; the reverse of edge `e` is `e ^ 1`."""

    def removed(self) -> list[Node]:
        """The removed nodes, in the order of `costs`."""
        numbers = {node: 2 * at for at, node in enumerate(self.costs)}
        source, sink = 2 * len(numbers), 2 * len(numbers) + 1
        self._edges = [[] for _ in range(sink + 1)]
        # A node is an edge from its entrance to its exit, so removing it cuts that edge.
        for node, cost in self.costs.items():
            self._add(numbers[node], numbers[node] + 1, cost)
            for reader in self.readers.get(node, ()):
                self._add(numbers[node] + 1, numbers[reader], UNBOUNDED)
        for node in self.sources:
            self._add(source, numbers[node], UNBOUNDED)
        for node in self.sinks:
            self._add(numbers[node] + 1, sink, UNBOUNDED)
        while (levels := self._levels(source))[sink] >= 0:
            self._block(levels, source, sink)
        reaching = self._reaching(sink)
        return [
            node
            for node, number in numbers.items()
            if number not in reaching and number + 1 in reaching
        ]

    def _add(self, start: int, end: int, capacity: float) -> None:
        self._edges[start].append(len(self._ends))
        self._edges[end].append(len(self._ends) + 1)
        self._ends += end, start
        self._left += capacity, 0.0

    def _levels(self, source: int) -> list[int]:
        """The distance of each vertex from the source along edges with capacity left; -1: none."""
        levels, waiting = [-1] * len(self._edges), deque([source])
        levels[source] = 0
        while waiting:
            vertex = waiting.popleft()
            for edge in self._edges[vertex]:
                if self._left[edge] and levels[self._ends[edge]] < 0:
                    levels[self._ends[edge]] = levels[vertex] + 1
                    waiting.append(self._ends[edge])
        return levels

    def _block(self, levels: list[int], source: int, sink: int) -> None:
        """Fills shortest paths until none is left."""
        tried = [0] * len(self._edges)
        """The number of edges of each vertex that lead nowhere any more."""
        path: list[int] = []
        while True:
            vertex = self._ends[path[-1]] if path else source
            if vertex == sink:
                amount = min(self._left[edge] for edge in path)
                for edge in path:
                    self._left[edge] -= amount
                    self._left[edge ^ 1] += amount
                path.clear()
            elif tried[vertex] == len(self._edges[vertex]):
                if not path:
                    return
                tried[self._ends[path.pop() ^ 1]] += 1
            else:
                edge = self._edges[vertex][tried[vertex]]
                if self._left[edge] and levels[self._ends[edge]] == levels[vertex] + 1:
                    path.append(edge)
                else:
                    tried[vertex] += 1

    def _reaching(self, sink: int) -> set[int]:
        """The vertices from which the sink is reached along edges with capacity left."""
        found, waiting = {sink}, [sink]
        while waiting:
            for edge in self._edges[waiting.pop()]:
                start = self._ends[edge]
                if self._left[edge ^ 1] and start not in found:
                    found.add(start)
                    waiting.append(start)
        return found
