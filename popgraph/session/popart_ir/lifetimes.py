"""An order of operators in which the tensors between them live shortly, by shifts that pay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

_MOST_STEPS = 400_000
"""So often a block of operators is tried behind or before another operator: a second or two."""


@dataclass
class Problem:
    """What must wait for what, and what it costs to have time pass between nodes."""

    waits: list[set[int]]
    """By node, what runs before it."""
    lives: list[tuple[int, list[int]]] = field(default_factory=list)
    """Tensors and other ties: the cost of a unit of time, and the nodes between which they are."""
    pulls: list[int] = field(default_factory=list)
    """What each node costs for a unit of time that passes before it."""

    def behind(self) -> list[list[int]]:
        """By node, what waits for it."""
        found: list[list[int]] = [[] for _ in self.waits]
        for node, needed in enumerate(self.waits):
            for one in sorted(needed):
                found[one].append(node)
        return found

    def held(self) -> list[list[int]]:
        """By node, the numbers of what lives there."""
        found: list[list[int]] = [[] for _ in self.waits]
        for number, (_, nodes) in enumerate(self.lives):
            for node in nodes:
                found[node].append(number)
        return found


def first_order(problem: Problem, breaker: str) -> list[int]:
    """Nodes as they become ready: of several, by `breaker`, the last, any, or the cheapest."""
    left = [len(needed) for needed in problem.waits]
    behind = problem.behind()
    queue = _QUEUES[breaker](problem)
    for node, count in enumerate(left):
        if not count:
            queue.push(node)
    found: list[int] = []
    while (ready := queue.pop()) is not None:
        found.append(ready)
        for user in behind[ready]:
            left[user] -= 1
            if not left[user]:
                queue.push(user)
    assert len(found) == len(left), "operators can be ordered"
    return found


class _Last:
    """Takes what became ready last."""

    def __init__(self, problem: Problem) -> None:
        self._ready: list[int] = []

    def push(self, node: int) -> None:
        self._ready.append(node)

    def pop(self) -> int | None:
        return self._ready.pop() if self._ready else None


class _Any(_Last):
    """Takes any node, the same in every run."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._chance = Random(1)

    def pop(self) -> int | None:
        if not self._ready:
            return None
        return self._ready.pop(self._chance.randrange(len(self._ready)))


class _Cheapest:
    """Takes the node behind which least lives on."""

    def __init__(self, problem: Problem) -> None:
        self._lives, self._held = problem.lives, problem.held()
        self._left = [len(nodes) for _, nodes in problem.lives]
        self._begun = [False] * len(problem.lives)
        self._ready: list[tuple[int, int]] = []
        self._waiting: set[int] = set()
        self._grows = [-pull for pull in problem.pulls]
        for weight, nodes in problem.lives:
            for node in nodes:
                self._grows[node] += weight if len(nodes) > 1 else 0

    def push(self, node: int) -> None:
        self._waiting.add(node)
        heappush(self._ready, (self._grows[node], node))

    def pop(self) -> int | None:
        while self._ready:
            grows, node = heappop(self._ready)
            if node in self._waiting and grows == self._grows[node]:
                self._waiting.discard(node)
                self._take(node)
                return node
        return None

    def _take(self, node: int) -> None:
        """What begins to live with a node costs others nothing, and one may be its last."""
        for number in self._held[node]:
            weight, nodes = self._lives[number]
            changed: Iterable[int] = () if self._begun[number] else nodes
            self._change(changed, weight)
            self._begun[number] = True
            self._left[number] -= 1
            if self._left[number] == 1:
                self._change(nodes, weight)

    def _change(self, nodes: Iterable[int], weight: int) -> None:
        for node in nodes:
            self._grows[node] -= weight
            if node in self._waiting:
                heappush(self._ready, (self._grows[node], node))


_QUEUES: dict[str, type[_Last | _Cheapest]] = {"fifo": _Last, "greedy": _Cheapest, "random": _Any}


class Shifts:
    """
    Moves blocks of nodes to where that costs least, single ones first, until nothing pays.

    Longer blocks are tried when no shorter one pays. The work is bounded: of a graph that asks
    for more, the order is the best one so far.
    """

    def __init__(self, problem: Problem, order: Sequence[int], most: int) -> None:
        """`most` is the number of moves behind which no round begins."""
        self._waits, self._behind = [sorted(one) for one in problem.waits], problem.behind()
        self._lives, self._pulls, self._held = problem.lives, problem.pulls, problem.held()
        self.order = list(order)
        self._place = [0] * len(self.order)
        for place, node in enumerate(self.order):
            self._place[node] = place
        self._first = [min(self._places(number)) for number in range(len(self._lives))]
        self._last = [max(self._places(number)) for number in range(len(self._lives))]
        self._most, self._steps = most, _MOST_STEPS
        self._fresh = [True] * len(self.order)
        """Which nodes may have somewhere to go since they were last tried."""

    def _places(self, number: int) -> list[int]:
        return [self._place[node] for node in self._lives[number][1]]

    def run(self) -> list[int]:
        length, moves, unchanged = 1, 0, True
        while moves < self._most and self._steps > 0:
            tried, self._fresh = self._fresh, [False] * len(self.order)
            made, room = self._round(length, tried)
            moves += made
            unchanged = unchanged and not made
            if made:
                continue
            if unchanged and room <= length + 1:
                break
            length = length + 1 if unchanged else 1
            unchanged = True
            self._fresh = [True] * len(self.order)
        return self.order

    def _round(self, length: int, tried: list[bool]) -> tuple[int, int]:
        """Tries every block of a length; how many it moved, and the most places one could go."""
        made, most = 0, 0
        for node in range(len(self.order)):
            start = self._place[node]
            block = self.order[start : start + length]
            if len(block) < length or not any(tried[one] for one in block):
                continue
            if self._steps <= 0:
                break
            before = start - 1 - self._last_needed(block, start)
            behind = self._first_user(block, start + length) - start - length
            most = max(most, before, behind)
            cost, shift = 0, 0
            if before >= length:
                for count, value in self._costs(block, start, -1, before):
                    if value < cost or (value == cost and shift < 0):
                        cost, shift = value, -count
            if behind >= length:
                for count, value in self._costs(block, start, 1, behind):
                    if value < cost:
                        cost, shift = value, count
            if shift:
                self._move(start, start + length, shift)
                made += 1
        return made, most

    def _last_needed(self, block: list[int], start: int) -> int:
        places = (self._place[one] for node in block for one in self._waits[node])
        return max((place for place in places if place < start), default=-1)

    def _first_user(self, block: list[int], end: int) -> int:
        places = (self._place[one] for node in block for one in self._behind[node])
        return min((place for place in places if place >= end), default=len(self.order))

    def _costs(
        self, block: list[int], start: int, sign: int, most: int
    ) -> Iterable[tuple[int, int]]:
        """
        What it costs to move a block by 1, 2, ... places; places count along `sign`.

        Each live range that meets the block grows or shrinks by one a step (the slope), until
        the block passes its first or last other node.
        """
        length = len(block)
        here = start if sign > 0 else -(start + length - 1)
        pull = sign * sum(self._pulls[node] for node in block)
        slope, cost = pull, 0
        begins: dict[int, tuple[int, int]] = {}
        ends: dict[int, tuple[int, int]] = {}
        inside: set[int] = set()
        for number in {number for node in block for number in self._held[node]}:
            inside.add(number)
            weight = self._lives[number][0]
            places = [sign * place for place in self._places(number)]
            self._steps -= 1
            mine = [place for place in places if here <= place < here + length]
            later = [place for place in places if place >= here + length]
            if min(places) >= here:  # it begins with the block
                slope -= weight
                if later:
                    begins[number] = (min(later), min(mine))
            if later:
                ends[number] = (max(later), max(mine))
            else:  # it ends with the block
                slope += weight
        for count in range(1, most + 1):
            passed = here + length + count - 1
            node = self.order[sign * passed]
            cost += slope - sign * length * self._pulls[node]
            self._steps -= 1
            for number in self._held[node]:
                weight = self._lives[number][0]
                if number in inside:
                    if number in begins and begins[number][0] == passed:
                        # from now on it begins with the node that was passed
                        cost += weight * (begins[number][1] + count - (passed - length))
                        slope += weight
                    if number in ends and ends[number][0] == passed:
                        cost += weight * (ends[number][1] + count - passed)
                        slope += weight
                    continue
                first, last = self._first[number], self._last[number]
                if sign * passed == (first if sign > 0 else last):
                    cost += weight * length
                if sign * passed == (last if sign > 0 else first):
                    cost -= weight * length
            yield count, cost

    def _move(self, start: int, end: int, shift: int) -> None:
        low, middle, high = (start, end, end + shift) if shift > 0 else (start + shift, start, end)
        self._mark(low, middle)
        self._mark(middle, high)
        order = self.order
        order[low:high] = order[middle:high] + order[low:middle]
        touched: set[int] = set()
        for place in range(low, high):
            self._place[order[place]] = place
            touched.update(self._held[order[place]])
        for number in touched:
            places = self._places(number)
            self._first[number], self._last[number] = min(places), max(places)

    def _mark(self, low: int, high: int) -> None:
        """What waits for, or is waited for by, what moves may have somewhere to go now."""
        place, fresh = self._place, self._fresh
        for node in self.order[low:high]:
            for one in self._waits[node]:
                if place[one] < low:
                    fresh[one] = fresh[node] = True
            for one in self._behind[node]:
                if place[one] >= high:
                    fresh[one] = fresh[node] = True


def shortened(problem: Problem, breaker: str, most: int) -> list[int]:
    """The nodes in an order of little cost; `most` is the number of moves that may be made."""
    return Shifts(problem, first_order(problem, breaker), most).run()
