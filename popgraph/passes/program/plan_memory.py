"""Memory planning: arena offsets, views, in-place results, outputs and variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.dialects.builtin import (
    IntegerAttr,
    MemRefType,
    ModuleOp,
    TensorType,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program import (
    CallCondOp,
    CallLoopOp,
    ConstantOp,
    GraphOp,
    PrepareOp,
    ReturnOp,
    UpdateOp,
    VariableOp,
    YieldOp,
    graphs_of,
)
from popgraph.dialects.program.control import callees_first, calls_in
from popgraph.dialects.tile import AssembleOp, BufferOp, CallOp, LaunchOp, ProgramOp, ViewOp
from popgraph.dialects.tile.attributes import memory_span, physical_shape
from popgraph.dialects.tile.loops.ops import memory_type
from popgraph.dialects.tile.program.ops import ALIGNMENT
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.program.control_steps import (
    Call,
    Preparation,
    Workspace,
    Writer,
    scratch_bytes,
)
from popgraph.passes.program.copies import Copies
from popgraph.passes.program.pack_intervals import Interval, lower_bound, pack
from popgraph.passes.structured.analysis.inplace_concat import Joins, places
from popgraph.support.errors import PassError
from popgraph.support.names import hint

BEFORE = -1
"""The time of copies that are made before the first launch."""


@dataclass(frozen=True)
class PlanMemory(Pass):
    """
    Every value gets memory: an arena for intermediate ones, the caller's arrays for the rest.

    pg.graph of tile.launch -> tile.program of tile.call
    """

    name = "plan-memory"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        copies = Copies(module)
        programs = dict[str, ProgramOp]()
        for graph in callees_first(graphs_of(module)):
            program = _Planner(graph, copies, programs).program()
            program.location = graph.location
            programs[program.sym_name.data] = program
            Rewriter.replace_op(graph, program, [])
        copies.insert()


@dataclass(eq=False)
class Storage:
    """One piece of memory. Times are numbers of launches."""

    space: str
    size: int = 0
    label: str = ""
    literal: Attribute | None = None
    offset: int = 0
    first: int = BEFORE
    last: int = BEFORE
    readers: list[int] = field(default_factory=list)
    alias_of: Storage | None = None
    """The storage whose memory this one has taken over in place, or is a part of."""
    start: int = 0
    """The byte of that storage where this one begins; none has an offset of its own then."""

    @property
    def root(self) -> Storage:
        """The storage whose memory this is; the way there is short the next time."""
        way, storage = list[Storage](), self
        while storage.alias_of is not None:
            way.append(storage)
            storage = storage.alias_of
        start = 0
        for passed in reversed(way):
            start += passed.start
            passed.alias_of, passed.start = storage, start
        return storage

    @property
    def place(self) -> int:
        """Where in its space it begins."""
        return self.root.offset + self.start

    is_part: bool = False
    """Whether it is one of several pieces of another storage."""

    def read(self, time: int) -> None:
        self.readers.append(time)
        self.root.last = max(self.root.last, time)


Timed: TypeAlias = LaunchOp | Call | Preparation[Storage]
"""What happens at a time of its own."""


@dataclass(frozen=True)
class Copy:
    """A value that has to be moved as it is."""

    value: SSAValue
    source: Storage
    target: Storage


def size_of(type_: Attribute) -> int:
    """The bytes behind a tensor, with what aligns what follows."""
    assert isinstance(type_, TensorType)
    return aligned(memory_span(type_)[1] * element_bytes(type_))


def aligned(size: int) -> int:
    """A number of bytes, rounded up so that whatever follows is aligned."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class _Section:
    """`prepare` or `body`: launches and calls in order, copies before and after them."""

    def __init__(self) -> None:
        self.launches: list[Timed] = []
        self.before: list[Copy] = []
        self.after: list[Copy] = []
        self.storages: list[Storage] = []

    @property
    def end(self) -> int:
        """The time of the copies after all launches."""
        return len(self.launches)

    def results(self, launch: LaunchOp | Call) -> Iterator[tuple[SSAValue, Storage]]:
        """New storage for everything that a launch writes."""
        made = [(result, self.storage(size_of(result.type))) for result in launch.results]
        self.launches.append(launch)
        yield from made

    def storage(self, size: int) -> Storage:
        """New storage for what the next launch writes."""
        made = Storage("arena", aligned(size), first=self.end, last=self.end)
        self.storages.append(made)
        return made

    def join(self, pieces: Sequence[tuple[Storage, int]], size: int) -> Storage:
        """Storage with these pieces in it, each at a byte; it lives as long as any of them."""
        first = min(piece.first for piece, _ in pieces)
        whole = Storage("arena", size, first=first, last=max(piece.last for piece, _ in pieces))
        for piece, start in pieces:
            piece.alias_of, piece.start, piece.is_part = whole, start, len(pieces) > 1
        self.storages.append(whole)
        return whole

    def intervals(self) -> list[tuple[Storage, Interval]]:
        """What the arena has to hold."""
        return [
            (storage, Interval(storage.first, storage.last, storage.size))
            for storage in self.storages
            if storage.root is storage and storage.space == "arena"
        ]


class _Planner:
    """Plans one graph."""

    def __init__(self, graph: GraphOp, copies: Copies, programs: Mapping[str, ProgramOp]) -> None:
        self._graph = graph
        self._programs = programs
        """Those that are planned already: all that this one calls."""
        self._workspaces: dict[Timed, Workspace[Storage]] = {}
        self._callees: dict[str, Storage] = {}
        """The persistent memory of the programs that this one calls, where they have any."""
        self._copies = copies
        self._storage: dict[SSAValue, Storage] = {}
        self._joins = Joins()
        self._prepare, self._body = _Section(), _Section()
        self._variables: dict[str, Storage] = {}
        self._declared: list[tuple[Storage, Attribute]] = []
        self._persistent = 0

    def program(self) -> ProgramOp:
        """The whole plan, written down."""
        for name, value in self._graph.inputs.items():
            self._declare(value, Storage("input", label=name))
        for name in calls_in(self._graph):
            self._prepare_callee(name)
        for op in self._graph.block.ops:
            self._place(op, self._body)
        self._place_outputs()
        self._place_updates()
        bound, arena = 0, 0
        for section in (self._prepare, self._body):
            self._share_in_place(section)
            pieces = section.intervals()
            offsets, size = pack([interval for _, interval in pieces])
            for (storage, _), offset in zip(pieces, offsets, strict=True):
                storage.offset = offset
            bound = max(bound, lower_bound([interval for _, interval in pieces]))
            arena = max(arena, size)
        checks = self._graph.return_op.checks
        program = ProgramOp(self._graph.sym_name.data, arena, self._persistent, bound, checks)
        self._write(self._prepare, program.prepare.block, [])
        self._write(self._body, program.body.block, self._declared)
        return program

    def _declare(self, value: SSAValue, storage: Storage) -> None:
        """An array that the caller sees, under the shape that the caller gives it."""
        assert isinstance(value.type, TensorType)
        self._storage.setdefault(value, storage)
        shape = physical_shape(value.type)
        self._declared.append((storage, MemRefType(value.type.element_type, shape)))

    def _place(self, op: Operation, section: _Section) -> None:
        """Gives the results of one operation their storage."""
        match op:
            case ConstantOp():
                self._storage[op.result] = Storage("constant", literal=op.literal)
            case VariableOp():
                storage = Storage("variable", label=op.variable.text, literal=op.literal)
                self._variables[storage.label] = storage
                self._declare(op.result, storage)
            case ViewOp():
                self._storage[op.output] = self._storage[op.source]
            case LaunchOp():
                for operand in op.operands:
                    self._storage[operand].read(section.end)
                self._storage.update(section.results(op))
            case CallCondOp() | CallLoopOp():
                self._workspaces[op] = self._workspace(op, section)
                for operand in op.operands:
                    self._storage[operand].read(section.end)
                self._storage.update(section.results(op))
            case AssembleOp() if op in self._joins:
                self._storage[op.output] = self._join(op, section)
            case PrepareOp():
                self._place_prepared(op)
            case ReturnOp() | UpdateOp() | YieldOp():
                pass
            case _:
                raise PassError(
                    f"{op.name} has no memory",
                    hint="plan-memory takes launches, calls, views, constants and variables; run "
                    "outline-kernels first",
                )

    def _prepare_callee(self, name: str) -> None:
        """Persistent memory for a program that is called, which is filled before all else."""
        size = self._programs[name].persistent.value.data
        if size:
            held = self._callees[name] = Storage("persistent", size, offset=self._persistent)
            self._persistent += size
            scratch = self._scratch([name], self._prepare)
            step = Preparation(name, Workspace(scratch, [held]))
            self._prepare.launches.append(step)

    def _workspace(self, op: Call, section: _Section) -> Workspace[Storage]:
        """What a call needs while it runs."""
        held = [self._callees[name] for name in op.graphs if name in self._callees]
        made = Workspace(self._scratch(op.graphs, section), held)
        if isinstance(op, CallLoopOp):
            made.turn = section.storage(1)
            made.next_go = None if op.go is None else section.storage(1)
            made.spares = [section.storage(size_of(value.type)) for value in op.finals]
        return made

    def _scratch(self, names: Sequence[str], section: _Section) -> Storage | None:
        """The arena of programs of which one runs at a time."""
        size = scratch_bytes(self._programs[name] for name in names)
        return section.storage(size) if size else None

    def _join(self, op: AssembleOp, section: _Section) -> Storage:
        """The pieces of a concatenation are computed where they stand in the whole."""
        pieces = []
        for piece, start in zip(op.pieces, places(op), strict=True):
            assert start is not None, "a join has its pieces in runs"
            pieces.append((self._storage[piece], start * element_bytes(piece.type)))
        return section.join(pieces, size_of(op.output.type))

    def _place_prepared(self, op: PrepareOp) -> None:
        """What a `pg.prepare` gives stays in memory of its own."""
        for inner in op.body.block.ops:
            self._place(inner, self._prepare)
        last = op.body.block.last_op
        assert isinstance(last, YieldOp)
        for result, value in zip(op.outputs, last.values, strict=True):
            storage = self._storage[result] = self._storage[value]
            if storage.space == "arena":
                storage.space = "persistent"
                storage.offset = self._persistent
                self._persistent += storage.size

    def _place_outputs(self) -> None:
        """An output is computed where the caller reads it, the first time; else it is copied."""
        for name, value in self._graph.outputs.items():
            storage = self._storage[value]
            if storage.space == "arena":
                storage.space, storage.label = "output", name
                self._declare(value, storage)
                continue
            target = Storage("output", label=name)
            self._declare(value, target)
            copy = Copy(value, storage, target)
            # What is there from the start is copied before an update can change it.
            (self._body.after if storage.space == "output" else self._body.before).append(copy)

    def _place_updates(self) -> None:
        """
        A variable's next value is computed in its own memory where nobody needs the old one later.

        Otherwise it is copied at the end; if its source is another variable that changes as well,
        by way of a copy of the old value.
        """
        updates = {op.variable.text: op.value for op in self._graph.updates()}
        for name, value in updates.items():
            storage = self._storage[value]
            old = self._variables.get(name)
            if old is None:
                old = self._variables[name] = Storage("variable", label=name)
                self._declare(value, old)
            if storage is old:
                continue
            if storage.space == "arena" and self._may_replace(old, storage):
                storage.space, storage.label = "variable", name
                continue
            if self._variables.get(storage.label) is storage and storage.label in updates:
                storage = self._save(value, storage)
            storage.read(self._body.end)
            self._body.after.append(Copy(value, storage, Storage("variable", label=name)))

    def _save(self, value: SSAValue, storage: Storage) -> Storage:
        """A copy of an old value that is made before anything runs."""
        saved = Storage("arena", size_of(value.type))
        self._body.storages.append(saved)
        self._body.before.append(Copy(value, storage, saved))
        return saved

    def _may_replace(self, old: Storage, new: Storage) -> bool:
        """Nobody reads the old value after the launch that writes the new one has begun."""
        if all(time < new.first for time in old.readers):
            return True
        if any(time > new.first for time in old.readers):
            return False
        pairs = self._in_place_pairs(self._body.launches[new.first])
        return any(source is old and result.root is new for source, result in pairs)

    def _in_place_pairs(self, launch: Timed) -> Iterator[tuple[Storage, Storage]]:
        """(operand, result) that may share memory, the operand being read under no other name."""
        if not isinstance(launch, LaunchOp):
            return
        operands = [self._storage[operand].root for operand in launch.operands]
        numbers = launch.inplace.data
        for i, j in zip(numbers[::2], numbers[1::2], strict=True):
            if self._storage[launch.operands[i]].is_part:
                continue
            if operands.count(operands[i]) == 1 and _same_size(launch, i, j):
                yield operands[i], self._storage[launch.results[j]]

    def _share_in_place(self, section: _Section) -> None:
        """Results take over the memory of operands that nobody reads any more."""
        for time, launch in enumerate(section.launches):
            used: set[Storage] = set()
            for source, result in self._in_place_pairs(launch):
                if source in used or result.alias_of is not None or result in used:
                    continue
                if source.space != "arena" or source.last != time or result.first != time:
                    continue
                if result.space == "variable" and not self._may_replace(
                    self._variables[result.label], source
                ):
                    continue
                used |= {source, result}
                self._take_over(source, result)

    def _take_over(self, source: Storage, result: Storage) -> None:
        """`result` keeps its place, and `source` moves there."""
        source.alias_of = result
        result.first = source.first

    def _write(
        self, section: _Section, block: Block, declared: Sequence[tuple[Storage, Attribute]]
    ) -> None:
        """The operations of a section."""
        buffers = _Buffers(block)
        for storage, type_ in declared:
            buffers.of(storage, type_)
        calls: list[Operation] = [self._copy(copy, buffers) for copy in section.before]
        memories: dict[SSAValue, SSAValue] = {}

        def of(value: SSAValue) -> SSAValue:
            if value not in memories:
                memories[value] = buffers.of(self._storage[value], memory_type(value))
            return memories[value]

        writer = Writer(buffers.of, of, self._programs)
        for launch in section.launches:
            if isinstance(launch, LaunchOp):
                arguments = [of(value) for value in (*launch.operands, *launch.results)]
                call: Operation = CallOp(launch.callee.string_value(), arguments, launch.chunks)
            elif isinstance(launch, Preparation):
                call = writer.step(launch, launch.workspace)
            else:
                call = writer.step(launch, self._workspaces[launch])
            if not isinstance(launch, Preparation):
                call.location = launch.location
            calls.append(call)
        calls += [self._copy(copy, buffers) for copy in section.after]
        block.add_ops(calls)

    def _copy(self, copy: Copy, buffers: _Buffers) -> CallOp:
        type_ = memory_type(copy.value)
        places = [buffers.of(storage, type_) for storage in (copy.source, copy.target)]
        return CallOp(self._copies.function(type_), places, IntegerAttr(1, i64))


def _same_size(launch: LaunchOp, operand: int, result: int) -> bool:
    return size_of(launch.operands[operand].type) == size_of(launch.results[result].type)


class _Buffers:
    """The `tile.buffer`s of a block, each once."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._known: dict[tuple[object, ...], SSAValue] = {}

    def of(self, storage: Storage, type_: Attribute) -> SSAValue:
        """The memory of a storage under a type."""
        assert isinstance(type_, MemRefType)
        place, storage = storage.place, storage.root
        constant = storage.literal if storage.space == "constant" else None
        key = (storage.space, place, storage.label, constant, type_)
        found = self._known.get(key)
        if found is None:
            op = BufferOp(
                storage.space,
                type_,
                offset=place,
                label=storage.label,
                literal=storage.literal,
            )
            self._block.add_op(op)
            op.memory.name_hint = hint(storage.label) or storage.space
            found = self._known[key] = op.memory
        return found
