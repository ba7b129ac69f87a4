"""Lowers each part of a model to a program, and counts its work and memory without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from popgraph import compiler
from popgraph.dialects.levels import LOOPS, ONNX, PROGRAM, level_of
from popgraph.dialects.tile import BufferOp
from popgraph.dialects.tile.program.lifetimes import bytes_moved, bytes_touched
from popgraph.dialects.tile.program.ops import ProgramOp, find_program
from popgraph.dialects.tile.program.work import Counter, Work, multiply_adds
from popgraph.measure.recorded_steps import RanSegment, run_steps
from popgraph.passes.graphcore.to_structured import GraphcoreToStructured
from popgraph.passes.onnx.partition import host_nodes
from popgraph.support.arrays import Array
from popgraph.support.errors import NeedsHostError

WEIGHTS = ("constant", "variable")
"""Memory spaces that persist between steps, besides prepared weights."""


@dataclass(frozen=True)
class ProgramWork:
    """The work of one program per step, and its memory."""

    multiply_adds: int | None
    """Multiply-adds of the model; None if the module was already lowered to loops."""
    work: Work
    """The work of its kernels."""
    moved: int
    arena: int
    largest_live_set: int
    weights: int
    """Bytes of weights, in original and packed form."""

    @property
    def flops(self) -> int:
        """2 flops per multiply-add."""
        return 2 * (self.multiply_adds or 0)


def work_of_program(request: compiler.BuildRequest) -> ProgramWork:
    """The work and memory of a request's program; lowers its module."""
    module, options = request.module, request.options
    written = level_of(module) not in (LOOPS, PROGRAM)
    if level_of(module) in (ONNX, "graphcore"):
        compiler.lower(module, request.compilation, options, until=GraphcoreToStructured.name)
    terms = multiply_adds(module) if written else None
    compiler.lower(module, request.compilation, options)
    program, counter = find_program(module, "main"), Counter(module)
    return ProgramWork(
        terms,
        counter.calls(program.body.block.ops),
        bytes_moved(program, counter),
        program.arena.value.data,
        program.lower_bound.value.data,
        program.persistent.value.data + _persistent_bytes(program),
    )


def _persistent_bytes(program: ProgramOp) -> int:
    """The bytes of variables, and of constants that steps read, each once."""
    found: dict[object, BufferOp] = {}
    for op in program.body.block.ops:
        if isinstance(op, BufferOp) and op.space.data in WEIGHTS:
            found.setdefault((op.space.data, op.label.text, op.literal), op)
    return bytes_touched(list(found.values()))


def work_of_programs(
    request: compiler.BuildRequest, inputs: Callable[[], Mapping[str, Array]]
) -> Iterator[ProgramWork]:
    """The program of a model; with host steps, each segment that runs for these inputs."""
    reason = None
    if level_of(request.module) != ONNX or not host_nodes(request.module):
        try:
            yield work_of_program(request)
            return
        except NeedsHostError as error:
            if not request.may_split:
                raise
            reason, request = error, request.before_lowering(error)
    for one in run_steps(request, request.steps(reason), inputs()):
        if isinstance(one, RanSegment):
            yield work_of_program(one.request)
