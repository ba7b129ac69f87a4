"""Facts about a model: its interface, parameters, operators, work and estimated time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp

from popgraph import compiler
from popgraph.backends.registry import DEFAULT
from popgraph.compiler import BuildRequest
from popgraph.dialects.levels import ONNX, level_of
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.program.ops import ReturnOp, YieldOp
from popgraph.measure.inputs import random_inputs
from popgraph.measure.peak import peak
from popgraph.measure.program_work import work_of_programs
from popgraph.measure.timing import Contestant, race
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.support.description import Description, TensorSpec
from popgraph.support.machine import Machine

ROUNDS = 10
"""Minimal number of timed runs."""


@dataclass(frozen=True)
class Tensor:
    """An input, an output or a parameter."""

    name: str
    type: str
    elements: int | None
    bytes: int | None


@dataclass(frozen=True)
class Cost:
    """The work and memory of a step, if all sizes are known."""

    multiply_adds: int | None
    """Multiply-adds of the model's contractions; None below the structured level."""
    bytes_moved: int
    """Bytes that kernels read and write; each operand and result counts once."""
    weights: int
    """Bytes of weights in memory, in original and packed form."""
    activations: int
    """Bytes of the arena of intermediate values."""
    largest_live_set: int
    """Peak bytes of live intermediate values."""
    estimated_cycles: float
    """Lower bound for one core: the larger of arithmetic at full rate and memory traffic."""


@dataclass(frozen=True)
class Time:
    """Estimated and measured time."""

    estimated_ms: float
    """The estimated cycles, at the measured rate of a multiply-add loop."""
    measured_ms: float
    threads: int


@dataclass(frozen=True)
class Facts:
    """The facts of a model, ready to be shown."""

    model: str
    level: str
    opsets: dict[str, int]
    inputs: list[Tensor]
    outputs: list[Tensor]
    parameters: list[Tensor]
    operators: dict[str, int] = field(default_factory=dict)
    """Number of nodes or operations by kind, subgraphs included."""
    cost: Cost | None = None
    time: Time | None = None

    @property
    def parameter_elements(self) -> int:
        return sum(one.elements or 0 for one in self.parameters)

    @property
    def parameter_bytes(self) -> int:
        return sum(one.bytes or 0 for one in self.parameters)


def facts_of(name: str, module: ModuleOp, said: Description) -> Facts:
    """Facts that need no lowering."""
    inputs, outputs, parameters = map(_tensors, (said.inputs, said.outputs, said.parameters))
    level = level_of(module)
    opsets = dict(model_of(module).opset_versions) if level == ONNX else {}
    counts = Counter(_operators(module))
    ordered = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    return Facts(name, level, opsets, inputs, outputs, parameters, dict(ordered))


def _tensors(specs: Mapping[str, TensorSpec]) -> list[Tensor]:
    return [Tensor(one.name, one.type, one.size, one.nbytes) for one in specs.values()]


def _operators(module: ModuleOp) -> Iterator[str]:
    for op in module.walk():
        if isinstance(op, OnnxOp):
            yield f"{op.domain}::{op.op_type}" if op.domain else op.op_type
        elif level_of(module) != ONNX and not op.regions and not isinstance(op, ReturnOp | YieldOp):
            yield op.name


def cost_of(request: BuildRequest) -> Cost:
    """The cost of a model with static shapes; lowers its module."""
    machine = request.options.target.machine
    inputs = request.copy()
    parts = list(work_of_programs(request, lambda: random_inputs(inputs.module)))
    counted = [part.multiply_adds for part in parts]
    return Cost(
        None if None in counted else sum(filter(None, counted)),
        sum(part.moved for part in parts),
        sum(part.weights for part in parts),
        sum(part.arena for part in parts),
        max((part.largest_live_set for part in parts), default=0),
        sum(
            cycles(part.work.flops, part.moved, part.arena + part.weights, machine)
            for part in parts
        ),
    )


def _flops_per_cycle(machine: Machine) -> float:
    return 2 * machine.fmas_per_cycle * machine.vector_bytes / 4


def cycles(flops: int, moved: int, held: int, machine: Machine) -> float:
    """
    max(flops / peak rate, moved / bandwidth of the smallest cache level that holds `held` bytes).
    """
    rate = machine.l2_bpc if held <= machine.l2_bytes else machine.memory_bpc
    return max(flops / _flops_per_cycle(machine), moved / rate)


def time_of(
    module: ModuleOp, compilation: Compilation, options: Options, threads: int, cost: Cost
) -> Time:
    """Times a model on random inputs, and the peak loop that scales the estimate."""
    inputs = random_inputs(module)
    run = compiler.runner(module, compilation, options, DEFAULT, threads)
    loop, flops = peak(1)
    contestants = [Contestant("peak", loop), Contestant("model", lambda: run(inputs))]
    race(contestants, threads=threads, seconds=0, rounds=ROUNDS)
    cycle = contestants[0].best / (flops / _flops_per_cycle(options.target.machine))
    return Time(cost.estimated_cycles * cycle * 1e3, contestants[1].best * 1e3, threads)
