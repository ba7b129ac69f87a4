"""Interprets a planned program: buffers in an arena, kernel calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeGuard

import numpy as np
from xdsl.dialects.builtin import MemRefType, ModuleOp, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from popgraph.backends.reference.control import Workspace, run_programs
from popgraph.backends.reference.graph import Functions, State
from popgraph.backends.reference.memory import Bytes, numpy_dtype, typed, unwritten, unwritten_bytes
from popgraph.dialects import tile
from popgraph.dialects.program import BlobAttr, DataAttr, WeightStore
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
