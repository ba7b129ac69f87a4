"""Interprets kernels: loops, memory accesses and vectors, with bounds checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from xdsl.dialects import memref, scf, vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, MemRefType, VectorType
from xdsl.ir import Block, Operation

from popgraph.backends.reference.bodies import (
    Frame,
    Scope,
    Step,
    Vocabulary,
    steps_of,
    yielded,
)
from popgraph.backends.reference.memory import numpy_dtype, unwritten
from popgraph.dialects.tile import ApartOp, PrefetchOp, ReceiveOp, SendOp
from popgraph.support.arrays import Array
from popgraph.support.ranks.world import exchange_if
from popgraph.support.shapes import Shape


class Kernel:
    """The body of a kernel function, ready to run."""

    def __init__(self, block: Block) -> None:
        self._scope = Scope()
        self._arguments = [self._scope.slot(argument) for argument in block.args]
        self._shapes = [_shape(argument.type) for argument in block.args[1:]]
        self._steps = steps_of(block, self._scope, KERNEL)

    def __call__(self, chunks: int, memories: Sequence[Array]) -> None:
        """Runs all chunks on the memory of operands and results."""
        assert [memory.shape for memory in memories] == self._shapes
        for chunk in range(chunks):
            frame = self._scope.frame()
            for slot, value in zip(self._arguments, (chunk, *memories), strict=True):
                frame[slot] = value
            for step in self._steps:
                step(frame)


def _shape(type_: object) -> Shape:
    assert isinstance(type_, MemRefType | VectorType)
    return type_.get_shape()


def _out_of_bounds(op: Operation, position: Sequence[int], shape: Shape) -> NoReturn:
    listed = ", ".join(str(int(index)) for index in position)
    raise AssertionError(f"[{listed}] is outside a memory of shape {list(shape)}: {op}")


def for_step(op: scf.ForOp, scope: Scope) -> Step:
    lower, upper, stride = (scope.slot(value) for value in (op.lb, op.ub, op.step))
    assert isinstance(op.lb.type, IndexType), "loops count in index"
    block = op.body.block
    index, *carried = (scope.slot(argument) for argument in block.args)
    initial = [scope.slot(value) for value in op.iter_args]
    steps = steps_of(block, scope, KERNEL)
    following = yielded(block, scope)
    results = [scope.slot(result) for result in op.results]

    def step(frame: Frame) -> None:
        assert frame[stride] > 0, f"the step of a loop is positive: {op}"
        values = [frame[slot] for slot in initial]
        for number in range(frame[lower], frame[upper], frame[stride]):
            frame[index] = number
            for slot, value in zip(carried, values, strict=True):
                frame[slot] = value
            for inner in steps:
                inner(frame)
            values = [frame[slot] for slot in following]
        for slot, value in zip(results, values, strict=True):
            frame[slot] = value

    return step


def if_step(op: scf.IfOp, scope: Scope) -> Step:
    condition = scope.slot(op.cond)
    results = [scope.slot(result) for result in op.results]
    branches = []
    for region in (op.false_region, op.true_region):
        steps = [step for block in region.blocks for step in steps_of(block, scope, KERNEL)]
        values = [slot for block in region.blocks for slot in yielded(block, scope)]
        branches.append((steps, values))

    def step(frame: Frame) -> None:
        steps, values = branches[bool(frame[condition])]
        for inner in steps:
            inner(frame)
        for slot, value in zip(results, values, strict=True):
            frame[slot] = frame[value]

    return step


def load_step(op: memref.LoadOp, scope: Scope) -> Step:
    memory, result = scope.slot(op.memref), scope.slot(op.res)
    indices = [scope.slot(index) for index in op.indices]
    shape = _shape(op.memref.type)

    def step(frame: Frame) -> None:
        position = tuple([frame[index] for index in indices])
        for at, size in zip(position, shape):  # noqa: B905 (hot, and the verifier has counted)
            if not 0 <= at < size:
                _out_of_bounds(op, position, shape)
        frame[result] = frame[memory][position]

    return step


def store_step(op: memref.StoreOp, scope: Scope) -> Step:
    memory, value = scope.slot(op.memref), scope.slot(op.value)
    indices = [scope.slot(index) for index in op.indices]
    shape = _shape(op.memref.type)

    def step(frame: Frame) -> None:
        position = tuple([frame[index] for index in indices])
        for at, size in zip(position, shape):  # noqa: B905 (hot, and the verifier has counted)
            if not 0 <= at < size:
                _out_of_bounds(op, position, shape)
        frame[memory][position] = frame[value]

    return step


def copy_step(op: memref.CopyOp, scope: Scope) -> Step:
    source, target = scope.slot(op.source), scope.slot(op.destination)

    def step(frame: Frame) -> None:
        frame[target][...] = frame[source]

    return step


def alloca_step(op: memref.AllocaOp, scope: Scope) -> Step:
    slot, shape, dtype = (
        scope.slot(op.memref),
        _shape(op.memref.type),
        numpy_dtype(op.memref.type),
    )

    def step(frame: Frame) -> None:
        frame[slot] = unwritten(shape, dtype)

    return step


def lanes(op: Operation, width: int, position: Sequence[int], shape: Shape) -> tuple[Any, ...]:
    """The index of a vector in memory: a slice of the last dimension that stays in its row."""
    *outer, last = position
    inside = all(0 <= at < size for at, size in zip(outer, shape[:-1], strict=True))
    if not inside or not 0 <= last <= shape[-1] - width:
        _out_of_bounds(op, [*outer, last + width - 1], shape)
    return (*outer, slice(last, last + width))


def vector_load_step(op: vector.LoadOp, scope: Scope) -> Step:
    memory, result = scope.slot(op.base), scope.slot(op.result)
    indices = [scope.slot(index) for index in op.indices]
    shape, (width,) = _shape(op.base.type), _shape(op.result.type)

    def step(frame: Frame) -> None:
        position = [frame[index] for index in indices]
        frame[result] = frame[memory][lanes(op, width, position, shape)].copy()

    return step


def vector_store_step(op: vector.StoreOp, scope: Scope) -> Step:
    memory, value = scope.slot(op.base), scope.slot(op.vector)
    indices = [scope.slot(index) for index in op.indices]
    shape, (width,) = _shape(op.base.type), _shape(op.vector.type)

    def step(frame: Frame) -> None:
        position = [frame[index] for index in indices]
        frame[memory][lanes(op, width, position, shape)] = frame[value]

    return step


def broadcast_step(op: vector.BroadcastOp, scope: Scope) -> Step:
    source, result = scope.slot(op.source), scope.slot(op.vector)
    shape, dtype = _shape(op.vector.type), numpy_dtype(op.vector.type)

    def step(frame: Frame) -> None:
        frame[result] = np.full(shape, frame[source], dtype)

    return step


def lane_of(op: vector.ExtractOp | vector.InsertOp, scope: Scope) -> tuple[int, int | None]:
    """The lane as (static lane, None), or (0, slot of the dynamic lane)."""
    (lane,) = op.static_position.get_values()
    if lane == DYNAMIC_INDEX:
        return 0, scope.slot(op.dynamic_position[0])
    return int(lane), None


def checked_lane(op: Operation, frame: Frame, lane: int, slot: int | None, width: int) -> int:
    lane = lane if slot is None else frame[slot]
    if not 0 <= lane < width:
        _out_of_bounds(op, [lane], (width,))
    return lane


def extract_step(op: vector.ExtractOp, scope: Scope) -> Step:
    source, result = scope.slot(op.vector), scope.slot(op.result)
    lane, slot = lane_of(op, scope)
    (width,) = _shape(op.vector.type)

    def step(frame: Frame) -> None:
        frame[result] = frame[source][checked_lane(op, frame, lane, slot, width)]

    return step


def insert_step(op: vector.InsertOp, scope: Scope) -> Step:
    value, target, result = (scope.slot(v) for v in (op.source, op.dest, op.result))
    lane, slot = lane_of(op, scope)
    (width,) = _shape(op.dest.type)

    def step(frame: Frame) -> None:
        made = frame[target].copy()
        made[checked_lane(op, frame, lane, slot, width)] = frame[value]
        frame[result] = made

    return step


def shuffle_step(op: vector.ShuffleOp, scope: Scope) -> Step:
    first, second, result = (scope.slot(value) for value in (op.v1, op.v2, op.result))
    mask = list(op.mask.get_values())
    assert min(mask) >= 0, f"every lane comes from somewhere: {op}"

    def step(frame: Frame) -> None:
        frame[result] = np.concatenate([frame[first], frame[second]])[mask]

    return step


def apart_step(op: ApartOp, scope: Scope) -> Step:
    lhs, rhs, result = scope.slot(op.lhs), scope.slot(op.rhs), scope.slot(op.result)

    def step(frame: Frame) -> None:
        frame[result] = frame[lhs].ctypes.data != frame[rhs].ctypes.data

    return step


def prefetch_step(op: PrefetchOp, scope: Scope) -> Step:
    index = scope.slot(op.index)

    def step(frame: Frame) -> None:
        assert frame[index] >= 0, f"memory begins at 0: {op}"

    return step


def send_step(op: SendOp, scope: Scope) -> Step:
    source, target = scope.slot(op.source), scope.slot(op.target)
    when = None if op.when is None else scope.slot(op.when)

    def step(frame: Frame) -> None:
        condition = None if when is None else np.asarray(frame[when])
        frame[target][...] = exchange_if(op.exchange, frame[source], condition)

    return step


def receive_step(op: ReceiveOp, scope: Scope) -> Step:
    source, target = scope.slot(op.source), scope.slot(op.target)

    def step(frame: Frame) -> None:
        frame[target][...] = frame[source]

    return step


KERNEL: Vocabulary = {
    scf.ForOp: for_step,
    scf.IfOp: if_step,
    memref.LoadOp: load_step,
    memref.StoreOp: store_step,
    memref.CopyOp: copy_step,
    memref.AllocaOp: alloca_step,
    vector.LoadOp: vector_load_step,
    vector.StoreOp: vector_store_step,
    vector.BroadcastOp: broadcast_step,
    vector.ExtractOp: extract_step,
    vector.InsertOp: insert_step,
    vector.ShuffleOp: shuffle_step,
    ApartOp: apart_step,
    PrefetchOp: prefetch_step,
    ReceiveOp: receive_step,
    SendOp: send_step,
}
"""The non-scalar operations of kernels."""
