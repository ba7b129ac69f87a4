"""Analysis of marked loops: dependences on their counters, and memory to promote to registers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from xdsl.dialects import arith, memref, scf, vector
from xdsl.dialects.builtin import IndexType, VectorType
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import Pure

from popgraph.dialects.tile.loops.recipes import is_unrolled
from popgraph.dialects.tile.loops.soundness import constant_of, iterations
from popgraph.dialects.tile.scalars import SCALARS
from popgraph.dialects.unchecked import operands_of
from popgraph.passes.structured.to_loops.emit.index import Index

Counters = tuple[SSAValue, ...]
"""The counters of marked loops, outermost first."""

LINEAR = {arith.AddiOp, arith.MuliOp}
LOADS = {memref.LoadOp, vector.LoadOp}
STORES = {memref.StoreOp, vector.StoreOp}
YIELD = scf.YieldOp
DIVISIONS = {arith.DivSIOp, arith.RemSIOp}
"""Operations that trap only if the divisor is 0 or -1."""
DEFERRED = {arith.CmpiOp, vector.BroadcastOp}


@cache
def _is_pure(kind: type[Operation]) -> bool:
    # xDSL's `arith.extsi` lacks the trait.
    pure = kind.has_trait(Pure) or kind is arith.ExtSIOp
    return pure and not (kind in SCALARS and SCALARS[kind].trapping)


def is_pure(op: Operation) -> bool:
    """Whether an operation has no effects and cannot trap, so that it may run anywhere."""
    return _is_pure(type(op)) or (type(op) in DIVISIONS and (constant_of(op.operands[1]) or 0) > 0)


def is_linear(op: Operation) -> bool:
    """Whether an operation is a sum or a product of indices."""
    return type(op) in LINEAR and type(op.results[0].type) is IndexType


@dataclass(eq=False)
class Access:
    """An access of memory; `stored` is None for a load."""

    op: Operation
    memory: SSAValue
    index: SSAValue
    stored: SSAValue | None
    path: Sequence[Block]
    """The blocks around the access, outermost first."""

    @property
    def type(self) -> Attribute:
        """The type of the loaded or stored value."""
        return self.op.results[0].type if self.stored is None else self.stored.type

    @staticmethod
    def of(op: Operation, path: Sequence[Block]) -> Access | None:
        """The access of a load or a store with one index; None for other operations."""
        operands = operands_of(op)
        if type(op) in LOADS and len(operands) == 2:
            return Access(op, operands[0], operands[1], None, path)
        if type(op) in STORES and len(operands) == 3:
            return Access(op, operands[1], operands[2], operands[0], path)
        return None


@dataclass
class Nest:
    """An outermost marked loop, with the marked loops in it."""

    accesses: list[Access] = field(default_factory=list)
    is_plain: bool = True
    """Whether it contains only marked loops, accesses and pure operations."""


class MarkedLoops:
    """
    The marked loops of a function, with dependences of values and memory to promote.

    `around` are the operations with marked loops inside. `depends` has the counters of marked loops
    that a value depends on.
    """

    def __init__(self, block: Block) -> None:
        self.around: set[Operation] = set()
        self.steps: dict[Operation, range] = {}
        """The values of the counter of each marked loop."""
        self.depends: dict[SSAValue, Counters] = {}
        self.registers: dict[Operation, Access] = {}
        """The accesses of promoted memory."""
        self.changed: dict[Operation, list[SSAValue]] = defaultdict(list)
        """The promoted memory that each loop stores to."""
        self._forms: dict[SSAValue, Index] = {}
        self._ranges: dict[SSAValue, range] = {}
        self._nests: list[Nest] = []
        self._nest_of: dict[Operation, Nest] = {}
        self._emitted: dict[Operation, list[Operation | Access]] = {}
        self._find((block,))
        self._promote()

    def _find(self, path: tuple[Block, ...]) -> bool:
        """Finds the marked loops of a block; returns whether there are any."""
        found = False
        for op in path[-1].ops:
            if not op.regions:
                continue
            if is_marked(op):
                found = True
                self._nests.append(Nest())
                self._visit_marked(op, path, (), self._nests[-1])
            # A list: `any` alone would stop at the first block with marked loops.
            elif any(list(map(self._find, ((*path, inner) for inner in _blocks(op))))):
                found = True
                self.around.add(op)
        return found

    def _visit_marked(
        self, op: Operation, path: tuple[Block, ...], counters: Counters, nest: Nest
    ) -> None:
        body, steps = _body(op), iterations(op)
        assert steps is not None
        counter, *carried = body.args
        counters = (*counters, counter)
        self.steps[op] = self._ranges[counter] = steps
        self._nest_of[op] = nest
        self._forms[counter] = Index.of(counter)
        self.depends[counter] = (counter,)
        self.depends.update(dict.fromkeys(carried, counters))
        path = (*path, body)
        for inner in body.ops:
            if is_pure(inner):
                found = [self.depends.get(used, ()) for used in operands_of(inner)]
                needed = max(found, key=len, default=())
                if any(not set(each).issubset(needed) for each in found):
                    needed = tuple(one for one in counters if any(one in each for each in found))
                self.depends.update(dict.fromkeys(inner.results, needed))
                continue
            if is_marked(inner):
                self._visit_marked(inner, path, counters, nest)
            elif access := Access.of(inner, path):
                nest.accesses.append(access)
            elif type(inner) is not YIELD:
                nest.is_plain = False
            self.depends.update(dict.fromkeys(inner.results, counters))

    def emitted(self, loop: Operation) -> list[Operation | Access]:
        """
        The operations and register accesses that an iteration of a marked loop writes, in order.

        Other operations are written at the first use of their results: index arithmetic, and all
        values of a nest that stores to registers only.
        """
        # Such a nest can load in any order. Elsewhere a store may change what a later load reads.
        found = self._emitted.get(loop)
        if found is None:
            nest = self._nest_of[loop]
            stores = [each.op for each in nest.accesses if each.stored is not None]
            is_plain = nest.is_plain and all(map(self.registers.__contains__, stores))
            found = self._emitted[loop] = [
                self.registers.get(op, op)
                for op in _body(loop).ops
                if not (self._is_value(op) if is_plain else is_deferred(op))
                and type(op) is not YIELD
            ]
        return found

    def _is_value(self, op: Operation) -> bool:
        """Whether an operation of a nest that stores to registers only may be written anywhere."""
        return is_pure(op) or (type(op) in LOADS and op not in self.registers)

    def form(self, index: SSAValue) -> Index:
        """The linear form of an index, in counters of marked loops and other values."""
        found = self._forms.get(index)
        if found is None:
            found = self._forms[index] = self._computed_form(index)
        return found

    def _computed_form(self, index: SSAValue) -> Index:
        if (constant := constant_of(index)) is not None:
            return Index(constant)
        op = index.owner
        if type(op) in LINEAR and index in self.depends:
            assert isinstance(op, Operation)
            lhs, rhs = map(self.form, operands_of(op))
            if type(op) is arith.AddiOp:
                return lhs + rhs
            if not rhs.terms:
                return lhs.scaled(rhs.constant)
        return Index.of(index)

    def _promote(self) -> None:
        """Finds the local memory to promote."""
        # Every use must be an access in a marked loop: the index of any other one is not constant.
        local: dict[SSAValue, list[Access]] = defaultdict(list)
        for nest in self._nests:
            for access in nest.accesses:
                if isinstance(access.memory.owner, memref.AllocaOp):
                    local[access.memory].append(access)
        for memory, accesses in local.items():
            if len(accesses) != memory.uses.get_length():
                continue
            home = _common([access.path for access in accesses])
            if not self._is_register(accesses, home):
                continue
            for access in accesses:
                self.registers[access.op] = access
                for block in access.path[home:] if access.stored is not None else ():
                    loop = block.parent_op()
                    assert loop is not None
                    if loop not in self.steps and memory not in self.changed[loop]:
                        self.changed[loop].append(memory)

    def _is_register(self, accesses: Sequence[Access], home: int) -> bool:
        """
        Whether memory becomes values: every element is stored before it is loaded.

        Its accesses, in order, share the first `home` blocks around them.
        """
        # A loop that may have no iterations would leave a register undefined: the first store of
        # each is in marked loops only. Registers are disjoint and keep one type.
        types: dict[int, Attribute] = {}
        stored: set[int] = set()
        for access in accesses:
            loops = [block.parent_op() for block in access.path[home:]]
            form = self.form(access.index)
            if not self._ranges.keys() >= form.terms.keys() or not all(
                isinstance(loop, scf.ForOp) for loop in loops
            ):
                return False
            slots, type_ = self._slots(form), access.type
            if access.stored is None:
                slots = [register_of(types, slot, type_) for slot in slots]
            elif any(types.setdefault(slot, type_) != type_ for slot in slots):
                return False
            if access.stored is not None and all(loop in self.steps for loop in loops):
                stored.update(slots)
            elif not stored.issuperset(slots):
                return False
        return _are_disjoint(types)

    def _slots(self, form: Index) -> list[int]:
        """The values of an index in all iterations."""
        numbers = [form.constant]
        for counter, factor in form.terms.items():
            numbers = [one + at * factor for one in numbers for at in self._ranges[counter]]
        return numbers


def is_marked(op: Operation) -> bool:
    """Whether an operation is a marked loop with constant bounds."""
    return is_unrolled(op) and isinstance(op, scf.ForOp) and iterations(op) is not None


def is_deferred(op: Operation) -> bool:
    """Whether an operation is deferred to the first use of its result, as emitters write it."""
    return type(op) in DEFERRED or is_linear(op)


def _body(loop: Operation) -> Block:
    return loop.regions[0].blocks[0]


def _blocks(op: Operation) -> Iterator[Block]:
    return (block for region in op.regions for block in region.blocks)


def _common(paths: Sequence[Sequence[Block]]) -> int:
    """The length of the common prefix of all paths."""
    first, length = paths[0], min(map(len, paths))
    while any(path[length - 1] is not first[length - 1] for path in paths):
        length -= 1
    return length


def register_of(types: Mapping[int, Attribute], at: int, type_: Attribute) -> int:
    """The first index of the register that contains these elements; -1 if there is none."""
    if types.get(at) == type_:
        return at
    start = max((slot for slot in types if slot <= at), default=-1)
    if start < 0 or at + _elements(type_) > start + _elements(types[start]):
        return -1
    return start


def _elements(type_: Attribute) -> int:
    """The number of elements in a register."""
    return int(type_.get_shape()[0]) if isinstance(type_, VectorType) else 1


def _are_disjoint(slots: dict[int, Attribute]) -> bool:
    """Whether registers of these types, by their first index, do not overlap."""
    end = 0
    for at in sorted(slots):
        if at < end:
            return False
        end = at + _elements(slots[at])
    return True
