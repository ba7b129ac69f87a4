"""A program on IPUs: its steps with their cycles, and the memory of every tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from popgraph.compiler.lowering import lower
from popgraph.dialects.program import GraphOp, graphs_of
from popgraph.dialects.program.calls import CallCondOp, CallLoopOp
from popgraph.dialects.program.control_signatures import UNBOUNDED
from popgraph.dialects.tile.mapping import MappingAttr
from popgraph.ipu.machine import Ipu
from popgraph.ipu.map_to_tiles import on_ipus
from popgraph.ipu.memory import Liveness, Memory, Moment
from popgraph.ipu.simulator import Simulator, Step
from popgraph.ipu.stages import mapping_of, own_mapping, stages
from popgraph.passes.base import Compilation
from popgraph.passes.observer import Observer
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.memo import cached_property

Part: TypeAlias = "Step | Call"
MAIN = "main"


@dataclass(frozen=True)
class Call:
    """A branch or loop: its copies, and the graphs that it runs."""

    op: Operation
    turns: int
    """Trip count of a loop; 1 if it depends on data."""
    copies: list[Step]
    bodies: list[list[Part]]

    @property
    def kind(self) -> str:
        return self.op.name

    @property
    def parts(self) -> list[Part]:
        """One iteration; for a branch, the longer path."""
        longest = max(self.bodies, key=lambda body: sum(part.cycles for part in body), default=[])
        return [*self.copies, *longest]

    @property
    def cycles(self) -> int:
        return self.turns * sum(part.cycles for part in self.parts)

    def split(self) -> dict[str, int]:
        """The cycles of all iterations by activity."""
        return _split([self])


class IpuModel:
    """A program mapped to IPUs, with its cycles and its memory."""

    def __init__(self, module: ModuleOp, ipu: Ipu) -> None:
        """`module` is the result of `map-to-tiles`."""
        self.ipu, self.module = ipu, module
        self._graphs = {graph.sym_name.data: graph for graph in graphs_of(module)}
        self._simulator = Simulator(ipu)
        self._temporary: dict[Operation, Array] = {}

    @staticmethod
    def of(
        module: ModuleOp,
        compilation: Compilation,
        options: Options,
        ipu: Ipu,
        observer: Observer | None = None,
    ) -> IpuModel:
        """Lowers and maps a copy of `module`, which may be of any higher level."""
        mapped = module.clone()
        lower(mapped, compilation, on_ipus(options, ipu), observer=observer)
        return IpuModel(mapped, ipu)

    @property
    def graph(self) -> GraphOp:
        return self._graphs[MAIN]

    @cached_property
    def parts(self) -> list[Part]:
        """The steps of the program in order; branches and loops contain theirs."""
        return list(self._parts(self.graph))

    def _parts(self, graph: GraphOp) -> Iterator[Part]:
        for op in graph.block.ops:
            if isinstance(op, CallCondOp | CallLoopOp):
                yield self._call(op)
                continue
            steps = self._simulator.steps(op)
            if steps:
                self._temporary[op] = np.maximum.reduce([step.temporary for step in steps])
            yield from steps

    def _call(self, op: CallCondOp | CallLoopOp) -> Call:
        bodies = [self._graphs[name] for name in op.graphs]
        copies = [self._simulator.copy(op, value, mapping_of(value)) for value in op.results]
        turns = op.turns if isinstance(op, CallLoopOp) and op.turns != UNBOUNDED else 1
        parts = [list(self._parts(body)) for body in bodies]
        self._temporary[op] = np.maximum.reduce([self._peak_of(body) for body in bodies])
        return Call(op, turns, [copy for copy in copies if copy.cycles], parts)

    @property
    def steps(self) -> list[Step]:
        """All steps once, including those in branches and loops."""
        return list(_flat(self.parts))

    @cached_property
    def memory(self) -> Memory:
        """The memory of each tile."""
        _ = self.parts  # which finds what operations need while they run
        found = Memory(self.ipu)
        tiles = self.ipu.total_tiles
        code = self.ipu.code_bytes + len(self.steps) * self.ipu.step_code_bytes
        found.by_category["code"] = np.full(tiles, code, np.int64)
        nothing, vertices = np.zeros(tiles, np.int64), np.zeros(tiles, np.int64)
        for graph in self._graphs.values():
            for held in Liveness(graph, self.ipu, self._temporary).persistent_tensors():
                found.tensors.append(held)
                before = found.by_category.get(held.category, 0)
                found.by_category[held.category] = before + held.on(tiles)
            for op in graph.block.ops:
                if op in self._temporary and not isinstance(op, CallCondOp | CallLoopOp):
                    for stage in stages(op):
                        busy = stage.pieces.tiles[stage.pieces.volumes > 0]
                        vertices[busy] += self.ipu.vertex_bytes
        found.by_category["vertices"] = vertices
        found.peak = np.zeros(tiles, np.int64)
        liveness = Liveness(self.graph, self.ipu, self._temporary)
        found.tensors += liveness.temporary_tensors()
        for op, live in liveness.moments():
            found.peak = np.maximum(found.peak, live)
            needed = self._temporary.get(op, nothing)
            found.moments.append(Moment(op, int(live.sum()), int(live.max(initial=0)), needed))
        return found

    def _peak_of(self, graph: GraphOp) -> Array:
        peak = np.zeros(self.ipu.total_tiles, np.int64)
        for _, live in Liveness(graph, self.ipu, self._temporary).moments():
            peak = np.maximum(peak, live)
        return peak

    @property
    def cycles(self) -> int:
        return sum(part.cycles for part in self.parts)

    @property
    def seconds(self) -> float:
        return self.cycles / self.ipu.clock_hertz

    def split(self) -> dict[str, int]:
        """The cycles by activity: compute, exchange, sync."""
        return _split(self.parts)

    @property
    def flops(self) -> int:
        return sum(step.flops * times for step, times in self.executed())

    def executed(self) -> Iterator[tuple[Step, int]]:
        """Every step with its number of executions."""
        yield from _executed(self.parts, 1)

    def mappings(self) -> dict[str, MappingAttr]:
        """The mappings of inputs, variables and outputs, by name."""
        graph = self.graph
        found = {name: mapping_of(value) for name, value in graph.inputs.items()}
        found |= {op.variable.text: own_mapping(op) for op in graph.variables()}
        found |= {name: mapping_of(value) for name, value in graph.outputs.items()}
        return found


def _flat(parts: list[Part]) -> Iterator[Step]:
    for part in parts:
        if isinstance(part, Step):
            yield part
            continue
        yield from part.copies
        for body in part.bodies:
            yield from _flat(body)


def _split(parts: list[Part]) -> dict[str, int]:
    found = {"compute": 0, "exchange": 0, "sync": 0}
    for step, times in _executed(parts, 1):
        for name in found:
            found[name] += getattr(step, name) * times
    return found


def _executed(parts: list[Part], times: int) -> Iterator[tuple[Step, int]]:
    for part in parts:
        if isinstance(part, Step):
            yield part, times
        else:
            yield from _executed(part.parts, times * part.turns)
