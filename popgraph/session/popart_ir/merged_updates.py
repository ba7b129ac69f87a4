"""Updates of several variables that PopART makes one, over their elements side by side."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from popgraph.builder.opset.enums import MergeVarUpdateType
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.session.options import SessionOptions
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.session.popart_ir.schedule import scheduled
from popgraph.session.popart_ir.updates import COMBINED, WEIGHT
from popgraph.support import dtypes
from popgraph.support.shapes import prod

_AT_PEAK = 8000
"""So many bytes of updates may wait where memory is fullest."""


@dataclass(frozen=True)
class _Part:
    """Elements of the variable that an update changes."""

    op: Op
    start: int
    end: int

    @property
    def elements(self) -> int:
        return self.end - self.start


Groups = list[list[_Part]]


def merge_updates(graph: OpGraph, options: SessionOptions, rule: OptimizerSpec) -> None:
    """Makes updates with the same numbers on the same IPU one, as far as is asked for."""
    merger = _Merger(graph, options, rule)
    match options.mergeVarUpdate:
        case MergeVarUpdateType.All:
            groups = merger.alike()
        case MergeVarUpdateType.AutoTight:
            groups = list(merger.tight())
        case MergeVarUpdateType.AutoLoose:
            groups = list(merger.loose())
        case _:
            return
    replaced: dict[Op, None] = {}
    for group in groups:
        if len(group) > 1 or any(not merger.is_whole(part) for part in group):
            _merge(graph, group)
            replaced |= dict.fromkeys(part.op for part in group)
    for op in replaced:
        graph.forget(op)


class _Merger:
    """Which updates belong together."""

    def __init__(self, graph: OpGraph, options: SessionOptions, rule: OptimizerSpec) -> None:
        self._graph, self._options, self._rule = graph, options, rule

    def alike(self) -> Groups:
        """All updates by their places and numbers, each whole."""
        groups: dict[Hashable, list[_Part]] = {}
        for op in self._graph.ops:
            if op.type in (COMBINED, "CopyVarUpdate"):
                groups.setdefault(self._numbers(op), []).append(self._whole(op))
        return list(groups.values())

    def _whole(self, op: Op) -> _Part:
        return _Part(op, 0, prod(self._graph.shape(op.input(0))))

    def is_whole(self, part: _Part) -> bool:
        return part == self._whole(part.op)

    def _numbers(self, op: Op) -> Hashable:
        """What updates that may become one have in common."""
        if op.type != COMBINED:
            return op.type, op.settings.ipu
        row = dtypes.BY_POPART[self._graph.infos[op.input(0)].data_type()]
        scalars = self._rule.compounds(str(op.attributes[WEIGHT]), row).values()
        values = tuple(one.value if one.constant else one.variable for one in scalars)
        return op.settings.ipu, row.name, values

    def _in_order(self) -> Iterator[tuple[int, int, _Part]]:
        """Updates as they are scheduled: the place, the group's number, and the whole."""
        groups = {part.op: n for n, group in enumerate(self.alike()) for part in group}
        for place, op in enumerate(scheduled(self._graph)):
            if op in groups:
                yield place, groups[op], self._whole(op)

    def _bytes(self, part: _Part) -> int:
        info = self._graph.infos[part.op.input(0)]
        return part.elements * dtypes.BY_POPART[info.data_type()].numpy.itemsize

    def tight(self) -> Iterator[list[_Part]]:
        """Groups of exactly the threshold's bytes, for which variables are cut."""
        threshold = self._options.mergeVarUpdateMemThreshold
        pending: dict[int, list[_Part]] = {}
        for _, number, part in self._in_order():
            waiting = pending.setdefault(number, [])
            while part.elements and self._total(waiting) + self._bytes(part) >= threshold:
                room = threshold - self._total(waiting)
                taken = room // self._bytes(replace(part, end=part.start + 1))
                taken = max(taken, 0 if waiting else 1)  # less than an element is no group
                if taken:
                    waiting.append(replace(part, end=part.start + taken))
                yield list(waiting)
                waiting.clear()
                part = replace(part, start=part.start + taken)
            if part.elements:
                waiting.append(part)
        yield from filter(None, pending.values())

    def loose(self) -> Iterator[list[_Part]]:
        """Whole variables, as long as their updates may wait without more memory at the peak."""
        order = list(self._in_order())
        free = self._free_memory()
        pending: dict[int, list[_Part]] = {}
        for (place, number, part), following in zip(order, [*order[1:], None], strict=True):
            pending.setdefault(number, []).append(part)
            spare = min(free[place : following[0]], default=0) if following else 0
            limit = min(spare, self._options.mergeVarUpdateMemThreshold)
            while (sizes := self._sizes(pending)) and sum(sizes.values()) > limit:
                yield pending.pop(max(sizes, key=sizes.__getitem__))
        yield from pending.values()

    def _sizes(self, pending: Mapping[int, list[_Part]]) -> dict[int, int]:
        return {number: self._total(parts) for number, parts in pending.items()}

    def _total(self, parts: Sequence[_Part]) -> int:
        return sum(map(self._bytes, parts))

    def _free_memory(self) -> list[int]:
        """By place: how far below its peak is what gradients still need, and what may be added."""
        graph, order = self._graph, scheduled(self._graph)
        place = {op: number for number, op in enumerate(order)}
        turn = max((place[op] for op in order if not op.backward), default=0)
        change = [0] * (len(order) + 1)
        for op in order[:turn]:
            for id in op.outputs.values():
                last = max((place[user] for user in graph.consumers(id)), default=-1)
                if last > turn:
                    info = graph.infos[id]
                    size = prod(info.shape()) * dtypes.BY_POPART[info.data_type()].numpy.itemsize
                    change[place[op]] += size
                    change[last] -= size
        held, found = 0, []
        for number in range(len(order)):
            held += change[number]
            found.append(held)
        peak = max(found, default=0)
        return [peak - one + _AT_PEAK for one in found]


def _merge(graph: OpGraph, group: Sequence[_Part]) -> None:
    """Variables and what changes them, flat and side by side, with one update."""
    first = group[0].op
    last = max(group, key=lambda part: graph.ops.index(part.op)).op
    sides = []
    for index, name in ((0, "concatWeights___"), (1, "concatGrads___")):
        flat = [_flat(graph, part, index, last) for part in group]
        name += "".join(f"_{part.op.input(index)}_{part.start}-{part.end}" for part in group)
        size = sum(part.elements for part in group)
        graph.add_tensor(name, TensorInfo(graph.infos[flat[0]].data_type(), [1, size]))
        inputs = dict(enumerate(flat))
        made = Op("ConcatInplace", inputs, {0: name}, {"axis": 1}, last.settings, backward=True)
        graph.add(made, before=last)
        sides.append(name)
    output = graph.add_tensor(f"updated___{sides[0]}", graph.infos[sides[0]])
    inputs = {**first.inputs, **dict(enumerate(sides))}
    made = Op(first.type, inputs, {0: output}, dict(first.attributes), first.settings)
    made.writes, made.backward = True, first.backward
    graph.add(made, before=last)


def _flat(graph: OpGraph, part: _Part, index: int, before: Op) -> str:
    """Elements of a tensor in a row."""
    id = part.op.input(index)
    row, whole = graph.infos[id].data_type(), prod(graph.shape(id))
    flat = f"flattened___{id}_s{part.start}_e{part.end}"
    graph.add_tensor(flat, TensorInfo(row, [1, whole]))
    settings = before.settings
    made = Op("ReshapeInplace", {0: id}, {0: flat}, settings=settings, backward=True)
    graph.add(made, before=before)
    if part.elements == whole:
        return flat
    cut = f"sliced____s{part.start}-e{part.end}_id{flat}"
    graph.add_tensor(cut, TensorInfo(row, [1, part.elements]))
    attributes: dict[str, object] = {"starts": [part.start], "ends": [part.end], "axes": [1]}
    made = Op("SliceInplace", {0: flat}, {0: cut}, attributes, settings, backward=True)
    graph.add(made, before=before)
    return cut
