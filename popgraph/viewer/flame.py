"""The flame graph of a profile: time by level, from the scopes of a model to its kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from popgraph.dialects.levels import GRAPHCORE, ONNX
from popgraph.support.figures import csv_text, rounded

MODEL, SCOPE, KERNEL = "model", "scope", "kernel"
ADDED = "added by passes"
"""The scope of operations without a node in the model, such as weight updates."""
CSV_COLUMNS = ("level", "name", "calls", "microseconds", "share")
"""Fields of `Box`."""


@dataclass(frozen=True)
class Measured:
    """A timed call: of a kernel, of a host step, or the overhead of a loop."""

    call: int
    """Index among the calls of the document."""
    name: str
    microseconds: float
    calls: int
    """Number of executions per step."""


@dataclass
class Box:
    """A box of the flame graph: its time, and the boxes below it."""

    level: str
    name: str
    places: list[int] = field(default_factory=list)
    """The nodes of the level; for a kernel, its call."""
    microseconds: float = 0.0
    share: float = 0.0
    """Fraction of the time of all calls of a step."""
    calls: int = 0
    """Number of kernel calls per step."""
    below: list[Box] = field(default_factory=list)


@dataclass(frozen=True)
class _Step:
    """One step on the path from the model to a kernel."""

    level: str
    name: str
    places: tuple[int, ...] = ()


def flame(
    name: str,
    measured: Iterable[Measured],
    calls: Sequence[Mapping[str, Any]],
    graphs: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Box:
    """
    The time of a step by level.

    A kernel that computes several nodes is placed below all of them together, in their common
    scope: no measured time is divided by estimate.
    """
    root = Box(MODEL, name)
    boxes: dict[tuple[_Step, ...], Box] = {(): root}
    for one in measured:
        way = tuple(_path(one, calls[one.call], graphs))
        for end in range(len(way) + 1):
            if way[:end] not in boxes:
                step = way[end - 1]
                boxes[way[:end]] = Box(step.level, step.name, list(step.places))
                boxes[way[: end - 1]].below.append(boxes[way[:end]])
            box = boxes[way[:end]]
            box.microseconds += one.microseconds
            box.calls += one.calls
    whole = root.microseconds or 1
    for box in boxes.values():
        box.share = rounded(box.microseconds / whole)
        box.microseconds = rounded(box.microseconds)
    return root


def _path(
    one: Measured,
    call: Mapping[str, Any],
    graphs: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Iterator[_Step]:
    nodes, operations = (_computed_nodes(call, level, graphs) for level in (ONNX, GRAPHCORE))
    for scope in _common_scope([node["scope"] for node in nodes]) if nodes else [ADDED]:
        yield _Step(SCOPE, scope)
    if nodes:
        yield _box_of_nodes(ONNX, nodes)
    if operations:
        yield _box_of_nodes(GRAPHCORE, operations)
    yield _Step(KERNEL, one.name, (one.call,))


def _computed_nodes(
    call: Mapping[str, Any], level: str, graphs: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[Mapping[str, Any]]:
    """The nodes of a level that a kernel computes; for a loop, only the loop itself."""
    numbers = sorted(call[level]) if call["kernel"] else call[level][:1]
    return [graphs[level][number] for number in numbers]


def _common_scope(scopes: Sequence[str]) -> list[str]:
    """The common prefix of scopes, outermost first."""
    first, *others = [scope.split("/") if scope else [] for scope in scopes]
    common = 0
    while common < len(first) and all(first[: common + 1] == one[: common + 1] for one in others):
        common += 1
    return first[:common]


def _box_of_nodes(level: str, nodes: Sequence[Mapping[str, Any]]) -> _Step:
    """The box of the nodes of one kernel: their kinds, and the name if there is only one."""
    kinds = " + ".join(dict.fromkeys(node["kind"] for node in nodes))
    own = nodes[0]["name"].rpartition("/")[2] if len(nodes) == 1 else ""
    return _Step(level, f"{kinds} {own}".strip(), tuple(node["id"] for node in nodes))


def csv_of(root: Box) -> str:
    """One CSV row per box; `in` is the number of the enclosing box."""
    numbers = count(1)

    def rows(box: Box, above: int | str) -> Iterator[list[object]]:
        number = next(numbers)
        yield [number, above, *(getattr(box, name) for name in CSV_COLUMNS)]
        for inner in box.below:
            yield from rows(inner, number)

    return csv_text([["number", "in", *CSV_COLUMNS], *rows(root, "")])
