"""Interprets a planned program: buffers in an arena, kernel calls, branches and loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

import numpy as np
from xdsl.dialects.builtin import MemRefType, ModuleOp, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from popgraph.backends.reference.graph import Functions, State
from popgraph.backends.reference.memory import Bytes, numpy_dtype, typed, unwritten, unwritten_bytes
from popgraph.dialects import tile
from popgraph.dialects.program import BlobAttr, DataAttr, WeightStore
from popgraph.dialects.program.control_signatures import Branching, Looping
from popgraph.support.arrays import Array
from popgraph.support.index_checks import IndexCheck


def _is_program(op: Operation) -> TypeGuard[tile.ProgramOp]:
    return isinstance(op, tile.ProgramOp)


class Program:
    """A `tile.program` with its functions, ready to run."""

    def __init__(self, module: ModuleOp, program: tile.ProgramOp, weights: WeightStore) -> None:
        self._module = module
        self._program = program
        self._weights = weights
        self._functions = Functions(module)
        self._persistent = unwritten_bytes(program.persistent.value.data)
        self._prepared = False
        self._callees: dict[str, Program] = {}

    @property
    def inputs(self) -> dict[str, TensorType[Attribute]]:
        return self._named("input")

    @property
    def outputs(self) -> dict[str, TensorType[Attribute]]:
        return self._named("output")

    @property
    def index_checks(self) -> tuple[IndexCheck, ...]:
        return self._program.index_checks

    def state(self) -> State:
        """The initial variables by name; zero without an initial value."""
        made: State = {
            name: np.zeros(type_.get_shape(), numpy_dtype(type_))
            for name, type_ in self._named("variable").items()
        }
        for op in self._buffers():
            if op.space.data == "variable" and op.literal is not None:
                made[op.label.text] = self._literal(op)
        return dict(sorted(made.items()))

    def step(
        self, inputs: Mapping[str, Array], state: Mapping[str, Array]
    ) -> tuple[dict[str, Array], State]:
        """Runs one step; returns the outputs, and the updated variables."""
        if not self._prepared:  # Not earlier: reading types must not require the weights.
            self._run(self._program.prepare.block, {"variable": self.state()}, self._arena())
            self._prepared = True
        following = {name: np.array(array) for name, array in sorted(state.items())}
        outputs = {
            name: unwritten(type_.get_shape(), numpy_dtype(type_))
            for name, type_ in self.outputs.items()
        }
        spaces = {"input": inputs, "output": outputs, "variable": following}
        self._run(self._program.body.block, spaces, self._arena())
        return outputs, following

    def prepare_on(self, arena: Bytes, persistent: Bytes) -> None:
        """Fills the persistent memory that the caller provides."""
        self._persistent = persistent
        self._run(self._program.prepare.block, {}, arena)

    def run_on(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], workspace: Workspace
    ) -> None:
        """Runs the program on the caller's memory."""
        self._persistent = workspace.persistent
        self._run(self._program.body.block, {"input": inputs, "output": outputs}, workspace.arena)

    def callee(self, name: str) -> Program:
        """Another program of the module."""
        if name not in self._callees:
            found = {op.sym_name.data: op for op in self._module.ops if _is_program(op)}
            self._callees[name] = Program(self._module, found[name], self._weights)
        return self._callees[name]

    @property
    def has_persistent(self) -> bool:
        return self._program.persistent.value.data > 0

    def _arena(self) -> Bytes:
        return unwritten_bytes(self._program.arena.value.data)

    def _run(self, block: Block, spaces: Mapping[str, Mapping[str, Array]], arena: Bytes) -> None:
        """Runs a section; `spaces` holds the caller's arrays by space and name."""
        memories: dict[SSAValue, Array] = {}
        for op in block.ops:
            match op:
                case tile.BufferOp():
                    memories[op.memory] = self._memory(op, arena, spaces)
                case tile.CallOp():
                    kernel = self._functions.called(op.callee)
                    kernel(op.chunks.value.data, [memories[value] for value in op.arguments])
                case tile.RunsPrograms():
                    run_programs(op, [self.callee(name) for name in op.programs], memories)
                case _:
                    raise AssertionError(f"{op.name} has no meaning in a program")

    def _memory(
        self, op: tile.BufferOp, arena: Bytes, spaces: Mapping[str, Mapping[str, Array]]
    ) -> Array:
        type_ = op.memory.type
        assert isinstance(type_, MemRefType)
        shape, dtype = type_.get_shape(), numpy_dtype(type_)
        match op.space.data:
            case "arena":
                return typed(arena, op.offset.value.data, shape, dtype)
            case "persistent":
                return typed(self._persistent, op.offset.value.data, shape, dtype)
            case "constant":
                array = self._literal(op)
            case space:
                array = spaces[space][op.label.text]
        assert array.dtype == dtype, f"{op} is {array.dtype}"
        whole = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        row = typed(whole, op.offset.value.data, shape, dtype)
        row.flags.writeable = op.space.data in ("output", "variable")
        return row

    def _literal(self, op: tile.BufferOp) -> Array:
        assert isinstance(op.literal, DataAttr | BlobAttr)
        return self._weights.array(op.literal)

    def _buffers(self) -> Iterator[tile.BufferOp]:
        for region in (self._program.body, self._program.prepare):
            for op in region.block.ops:
                if isinstance(op, tile.BufferOp):
                    yield op

    def _named(self, space: str) -> dict[str, TensorType[Attribute]]:
        """The types of a space's arrays; the first buffer of each has its full shape."""
        found: dict[str, TensorType[Attribute]] = {}
        for op in self._buffers():
            type_ = op.memory.type
            assert isinstance(type_, MemRefType)
            if op.space.data == space:
                found.setdefault(op.label.text, TensorType(type_.element_type, type_.get_shape()))
        return found


# Branches and loops, on their planned memory

Memories = Mapping[SSAValue, Array]
"""The memory of each memref, as a flat array."""


@dataclass(frozen=True)
class Workspace:
    """The memory that a caller provides to a program."""

    arena: Bytes
    persistent: Bytes


class Callee(Protocol):
    """A program that runs on its caller's memory."""

    @property
    def has_persistent(self) -> bool: ...

    def prepare_on(self, arena: Bytes, persistent: Bytes) -> None: ...

    def run_on(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], workspace: Workspace
    ) -> None: ...


def run_programs(op: tile.RunsPrograms, programs: Sequence[Callee], memories: Memories) -> None:
    """One step that runs other programs."""
    workspaces = list(_workspaces(op, programs, memories))
    match op:
        case tile.PrepareProgramOp():
            programs[0].prepare_on(workspaces[0].arena, workspaces[0].persistent)
        case tile.CondOp():
            chosen = 0 if _first(op.predicate[0], memories) else 1
            captured, outputs = _rows(op.captured, memories), _rows(op.outputs, memories)
            programs[chosen].run_on(
                dict(zip(Branching.input_names(len(captured)), captured, strict=True)),
                dict(zip(Branching.output_names(len(outputs)), outputs, strict=True)),
                workspaces[chosen],
            )
        case tile.LoopOp():
            _run_loop(op, programs[0], workspaces[0], memories)


def _workspaces(
    op: tile.RunsPrograms, programs: Sequence[Callee], memories: Memories
) -> Iterable[Workspace]:
    """The memory of each program; all share one arena."""
    nothing = np.zeros(0, np.uint8)
    arena = next(iter(_rows(op.group("scratch"), memories)), nothing).view(np.uint8)
    held = iter(_rows(op.group("persistent"), memories))
    for program in programs:
        yield Workspace(arena, next(held).view(np.uint8) if program.has_persistent else nothing)


def _run_loop(op: tile.LoopOp, program: Callee, workspace: Workspace, memories: Memories) -> None:
    carried, finals = _rows(op.carried, memories), _rows(op.finals, memories)
    spares, captured = _rows(op.spares, memories), _rows(op.captured, memories)
    (number,) = _rows(op.turn, memories)
    scanned = [_by_iteration(op, row) for row in _rows(op.scanned, memories)]
    stacked = [_by_iteration(op, row) for row in _rows(op.stacked, memories)]
    input_names = Looping.input_names(len(carried), len(scanned), len(captured))
    output_names = Looping.output_names(op.go is not None, len(carried), len(stacked))
    trips, go = op.turns, True
    if op.limit is not None:
        trips = min(trips, int(_first(op.limit, memories)))
    if op.go is not None:
        go = bool(_first(op.go, memories))
    if op.ends_early:
        for rows in stacked:
            rows[...] = 0
    targets = [finals, spares]
    if not op.ends_early and trips % 2 == 0:
        targets.reverse()
    iteration = 0
    while go and iteration < trips:
        at = op.turns - 1 - iteration if op.reverse is not None else iteration
        number[0] = at
        target = targets[iteration % 2]
        given = [number, *carried, *(rows[at] for rows in scanned), *captured]
        next_go = _rows(op.group("next_go"), memories)
        made = [*next_go, *target, *(rows[at] for rows in stacked)]
        program.run_on(
            dict(zip(input_names, given, strict=True)),
            dict(zip(output_names, made, strict=True)),
            workspace,
        )
        go = all(bool(row[0]) for row in next_go)
        carried = target
        iteration += 1
    for final, last in zip(finals, carried, strict=True):
        final[...] = last


def _rows(values: Iterable[SSAValue], memories: Memories) -> list[Array]:
    return [memories[value] for value in values]


def _first(value: SSAValue, memories: Memories) -> np.generic:
    first: np.generic = memories[value].reshape(-1)[0]
    return first


def _by_iteration(op: tile.LoopOp, row: Array) -> Array:
    """A flat array as one row per iteration."""
    return row.reshape(op.turns, row.size // op.turns if op.turns else 0)
