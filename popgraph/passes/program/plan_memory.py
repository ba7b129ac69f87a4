"""Memory planning: arena offsets, views, in-place results, outputs and variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import MemRefType, ModuleOp, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
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
from popgraph.dialects.program.calls import callees_first, calls_in
from popgraph.dialects.tile import AssembleOp, LaunchOp, ProgramOp, ViewOp
from popgraph.dialects.tile.attributes import physical_shape
from popgraph.dialects.tile.running import ends_of
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.program.copies import Copies
from popgraph.passes.program.pack_intervals import lower_bound, pack
from popgraph.passes.program.section import Copy, Section, Step
from popgraph.passes.program.storage import Storage, size_of
from popgraph.passes.program.workspace import (
    Call,
    CallStep,
    Preparation,
    Workspace,
    scratch_bytes,
)
from popgraph.passes.program.write_section import SectionWriter
from popgraph.passes.properties import LAUNCHED, UNHANDED
from popgraph.passes.structured.analysis.inplace_concat import Joins, places
from popgraph.support.errors import PassError


@dataclass(frozen=True)
class PlanMemory(Pass):
    """
    Assigns memory to values: an arena for intermediate values, the caller's arrays for the rest.

    pg.graph of tile.launch -> tile.program of tile.call
    """

    name = "plan-memory"
    WRITES_CALLS = True
    NEEDS = (LAUNCHED,)
    GIVES = (UNHANDED,)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        copies = Copies(module)
        programs = dict[str, ProgramOp]()
        for graph in callees_first(graphs_of(module)):
            program = _Planner(graph, copies, programs).program()
            program.location = graph.location
            programs[program.sym_name.data] = program
            Rewriter.replace_op(graph, program, [])
        copies.insert()


class _Planner:
    """Plans one graph."""

    def __init__(self, graph: GraphOp, copies: Copies, programs: Mapping[str, ProgramOp]) -> None:
        self._graph = graph
        self._programs = programs
        """The programs planned before, among them all callees."""
        self._callees: dict[str, Storage] = {}
        """The persistent memory of each callee that has any."""
        self._copies = copies
        self._storage: dict[SSAValue, Storage] = {}
        self._joins = Joins()
        self._prepare, self._body = Section(), Section()
        self._variables: dict[str, Storage] = {}
        self._in_place = InPlace(self._storage, self._variables, self._body)
        self._declared: list[tuple[Storage, Attribute]] = []
        self._persistent = 0

    def program(self) -> ProgramOp:
        """Plans the graph and writes it as a program."""
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
            self._in_place.share(section)
            pieces = section.intervals()
            offsets, size = pack([interval for _, interval in pieces])
            for (storage, _), offset in zip(pieces, offsets, strict=True):
                storage.offset = offset
            bound = max(bound, lower_bound([interval for _, interval in pieces]))
            arena = max(arena, size)
        checks = self._graph.return_op.checks
        program = ProgramOp(self._graph.sym_name.data, arena, self._persistent, bound, checks)
        program.donated = self._donations()
        writer = SectionWriter(self._storage, self._programs, self._copies)
        writer.write(self._prepare, program.prepare.block, [])
        writer.write(self._body, program.body.block, self._declared)
        return program

    def _declare(self, value: SSAValue, storage: Storage) -> None:
        """Declares an array of the caller, with its physical shape."""
        assert isinstance(value.type, TensorType)
        self._storage.setdefault(value, storage)
        shape = physical_shape(value.type)
        self._declared.append((storage, MemRefType(value.type.element_type, shape)))

    def _place(self, op: Operation, section: Section) -> None:
        """Assigns storage to the results of one operation."""
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
                self._place_step(op, op, section)
            case CallCondOp() | CallLoopOp():
                self._place_step(op, CallStep(op, self._workspace(op, section)), section)
            case AssembleOp() if op in self._joins:
                self._storage[op.output] = self._join(op, section)
            case PrepareOp():
                self._place_prepared(op)
            case ReturnOp() | UpdateOp() | YieldOp():
                pass
            case _:
                raise PassError(
                    f"plan-memory does not support {op.name}",
                    hint="it takes launches, calls, views, constants and variables; run "
                    "structured-to-loops first",
                )

    def _place_step(self, op: Operation, step: Step, section: Section) -> None:
        """Appends a step to a section, which reads the operands and writes the results of `op`."""
        for operand in op.operands:
            self._storage[operand].read(section.end)
        self._storage.update(section.add(step, op.results))

    def _prepare_callee(self, name: str) -> None:
        """Reserves persistent memory for a callee and fills it at the start of `prepare`."""
        size = self._programs[name].persistent.value.data
        if size:
            held = self._callees[name] = Storage("persistent", size, offset=self._persistent)
            self._persistent += size
            scratch = self._scratch([name], self._prepare)
            self._prepare.add(Preparation(name, Workspace(scratch, [held])))

    def _workspace(self, op: Call, section: Section) -> Workspace:
        """The memory that a branch or a loop uses while it runs."""
        held = [self._callees[name] for name in op.graphs if name in self._callees]
        made = Workspace(self._scratch(op.graphs, section), held)
        if isinstance(op, CallLoopOp):
            made.counter = section.storage(1)
            made.next_go = None if op.go is None else section.storage(1)
            made.spares = [section.storage(size_of(value.type)) for value in op.finals]
        return made

    def _scratch(self, names: Sequence[str], section: Section) -> Storage | None:
        """Scratch memory for the largest arena of the programs, which run one at a time."""
        size = scratch_bytes(self._programs[name] for name in names)
        return section.storage(size) if size else None

    def _join(self, op: AssembleOp, section: Section) -> Storage:
        """Makes the pieces of a concatenation aliases of slices of the whole."""
        pieces = []
        for piece, start in zip(op.pieces, places(op), strict=True):
            assert start is not None, "each piece of a join is contiguous"
            pieces.append((self._storage[piece], start * element_bytes(piece.type)))
        return section.join(pieces, size_of(op.output.type))

    def _place_prepared(self, op: PrepareOp) -> None:
        """Moves the results of a `pg.prepare` from the arena to persistent memory."""
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
        """Computes outputs in the caller's arrays; a value that is not in the arena is copied."""
        for name, value in self._graph.outputs.items():
            storage = self._storage[value]
            if storage.space == "arena":
                storage.space, storage.label = "output", name
                self._declare(value, storage)
                continue
            target = Storage("output", label=name)
            self._declare(value, target)
            copy = Copy(value, storage, target)
            # Values that exist from the start, as variables, are copied before updates change them.
            (self._body.after if storage.space == "output" else self._body.before).append(copy)

    def _donations(self) -> dict[str, str]:
        """Inputs that a caller may donate, each with the output that may overwrite it."""
        found = dict[str, str]()
        for name, value in self._graph.inputs.items():
            for output, result in self._graph.outputs.items():
                old, new = self._storage[value], self._storage[result].root
                if old.space != "input" or (new.space, new.label) != ("output", output):
                    continue
                if value.type == result.type and self._in_place.replaces(old, new):
                    found.setdefault(name, output)
        return found

    def _place_updates(self) -> None:
        """
        Computes the next value of a variable in place if the old value is dead by then.

        Otherwise it is copied at the end. If variables are swapped, the old value of the source is
        saved first.
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
            if storage.space == "arena" and self._in_place.may_replace(old, storage):
                storage.space, storage.label = "variable", name
                continue
            if self._variables.get(storage.label) is storage and storage.label in updates:
                storage = self._save(value, storage)
            storage.read(self._body.end)
            self._body.after.append(Copy(value, storage, Storage("variable", label=name)))

    def _save(self, value: SSAValue, storage: Storage) -> Storage:
        """Copies an old value before the first step."""
        saved = Storage("arena", size_of(value.type))
        self._body.storages.append(saved)
        self._body.before.append(Copy(value, storage, saved))
        return saved


@dataclass(frozen=True)
class InPlace:
    """Decides which results of a plan take over the memory of an operand."""

    storage: Mapping[SSAValue, Storage]
    variables: Mapping[str, Storage]
    body: Section
    """The section that updates variables."""

    def may_replace(self, old: Storage, new: Storage) -> bool:
        """Whether all reads of `old` precede the launch that writes `new`, or it works in place."""
        if all(time < new.first for time in old.readers):
            return True
        if any(time > new.first for time in old.readers):
            return False
        pairs = self.pairs(self.body.steps[new.first])
        return any(source is old and result.root is new for source, result in pairs)

    def pairs(self, launch: Step) -> Iterator[tuple[Storage, Storage]]:
        """Pairs (operand, result) that may share memory, which no other operand reads."""
        if not isinstance(launch, LaunchOp):
            return
        operands = [self.storage[operand].root for operand in launch.operands]
        positions = launch.inplace.data
        for i, j in zip(positions[::2], positions[1::2], strict=True):
            # The root of a slice is the whole concatenation, larger than the result.
            if self.storage[launch.operands[i]].is_part:
                continue
            if operands.count(operands[i]) == 1 and _same_size(launch, i, j):
                yield operands[i], self.storage[launch.results[j]]

    def replaces(self, old: Storage, new: Storage) -> bool:
        """Whether the launch that computes `new` overwrites all of `old`, which then is dead."""
        if not old.readers or max(old.readers) != new.first or not self.may_replace(old, new):
            return False
        pairs = self.pairs(self.body.steps[new.first])
        whole = [result for source, result in pairs if source is old and result.root is new]
        return any(not result.is_part and not result.start for result in whole)

    def share(self, section: Section) -> None:
        """Results take over the memory of operands whose last reader is the same launch."""
        for time, launch in enumerate(section.steps):
            used: set[Storage] = set()
            for source, result in self.pairs(launch):
                if source in used or result.alias_of is not None or result in used:
                    continue
                # Inputs, constants and variables keep their contents.
                if source.space != "arena" or source.last != time or result.first != time:
                    continue
                if not _ends_like(section.steps[source.first], launch):
                    continue
                if result.space == "variable" and not self.may_replace(
                    self.variables[result.label], source
                ):
                    continue
                used |= {source, result}
                _take_over(source, result)


def _ends_like(maker: Step, launch: Step) -> bool:
    """
    Whether the producer of an operand writes no more of it than the launch.

    The shared memory may be an output of the caller, which holds only the sizes of the call.
    """
    if not isinstance(launch, LaunchOp):
        return True
    made = ends_of(maker) if isinstance(maker, LaunchOp) else []
    return {*ends_of(launch)} <= {*made}


def _take_over(source: Storage, result: Storage) -> None:
    """Makes `source` an alias of `result`, which lives from the first write of `source`."""
    source.alias_of = result
    result.first = source.first


def _same_size(launch: LaunchOp, operand: int, result: int) -> bool:
    return size_of(launch.operands[operand].type) == size_of(launch.results[result].type)
