"""Memory accesses of a kernel: each with its index as a linear form, its loops and conditions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from xdsl.dialects import arith, func, memref, scf, vector
from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType, VectorType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from popgraph.dialects.tile import ApartOp, ReceiveOp, SendOp
from popgraph.dialects.tile.loops.soundness import constant_of
from popgraph.passes.validation.forms import (
    ANYTHING,
    Bounds,
    Form,
    Loop,
    Numbers,
    applied,
    counter,
    unknown,
)
from popgraph.passes.validation.runs import NOTHING, Runs
from popgraph.support.shapes import prod

Memory: TypeAlias = SSAValue
"""An argument of the kernel, or a local array."""


@dataclass(frozen=True, eq=False)
class Site:
    """One operation that reads or writes memory, for all iterations of its loops."""

    op: Operation
    memory: Memory
    writes: bool
    index: Form
    width: int
    """The number of consecutive elements of one access."""
    loops: tuple[Loop, ...]
    """From the outermost one."""
    conditions: tuple[tuple[Form, bool], ...]
    times: tuple[int, ...]
    """The position in the body of each loop, in operations."""
    certain: bool
    """Whether it always runs; False if data decide."""

    @property
    def size(self) -> int:
        """The elements of the memory."""
        return elements_of(self.memory)

    @property
    def fills(self) -> bool:
        """Whether it writes a literal."""
        stored = self.op.operands[0].owner
        while isinstance(stored, Operation) and len(stored.operands) == 1 and not stored.regions:
            stored = stored.operands[0].owner  # A broadcast or a conversion.
        return self.writes and isinstance(stored, arith.ConstantOp)

    @property
    def is_located(self) -> bool:
        """Whether the index does not depend on data."""
        return not self.index.is_unknown

    def instances(self, listed: Set[Loop]) -> Instances:
        """
        The accesses, with one base for each iteration of the `listed` loops.

        Loops that are not linear in the index or decide trip counts are listed in addition.
        """
        needed = self.index.entangled | (listed & {*self.loops})
        for condition, _ in self.conditions:
            needed |= condition.loops
        for loop in self.loops:
            if loop.trips.number is None:
                needed |= {loop} | loop.trips.loops
        counters, size = grid([loop for loop in self.loops if loop in needed])
        kept = np.ones(size, np.bool_)
        for condition, wanted in self.conditions:
            kept &= (condition.at(counters, size) != 0) == wanted
        if not kept.all():
            counters = {loop: numbers[kept] for loop, numbers in counters.items()}
            size = int(kept.sum())
        free = [loop for loop in self.loops if loop not in needed]
        strides = dict[int, int]()
        for atom, factor in self.index.terms:
            if isinstance(atom, Loop) and atom not in needed:
                strides[factor] = strides.get(factor, 0) + atom.most - 1
        block = Runs.of(0, self.width)
        for factor in sorted(strides, key=abs):
            block = block.repeated(factor, strides[factor] + 1)
        count = size * self.width * prod([loop.most for loop in free])
        return Instances(self, counters, self.index.at(counters, size), block, count)


@dataclass(frozen=True)
class Instances:
    """The accesses of a site: each of `bases` plus each element of `block`."""

    site: Site
    counters: Mapping[Loop, Numbers]
    bases: Numbers
    block: Runs
    count: int
    """Accesses to single elements."""

    @property
    def elements(self) -> Runs:
        """The set of accessed elements."""
        if not len(self.bases):
            return NOTHING
        return self.block.at_each(self.bases)

    def times(self, timed: Set[Loop]) -> Numbers:
        """The time of each base; the iterations of loops that are not `timed` are simultaneous."""
        found = np.zeros(len(self.bases), np.int64)
        for loop, position in zip(self.site.loops, self.site.times, strict=True):
            if loop not in timed:
                break
            found += position
            if loop in self.counters:
                found += self.counters[loop] * loop.ticks
        return found


def grid(loops: Sequence[Loop]) -> tuple[dict[Loop, Numbers], int]:
    """The counters of all iterations of nested loops, in order, and the number of iterations."""
    counters, size = dict[Loop, Numbers](), 1
    for loop in loops:
        trips = np.maximum(loop.trips.at(counters, size), 0)
        first = np.cumsum(trips) - trips
        counters = {outer: np.repeat(numbers, trips) for outer, numbers in counters.items()}
        size = int(trips.sum())
        counters[loop] = np.arange(size) - np.repeat(first, trips)
    return counters, size


def elements_of(memory: Memory) -> int:
    """The number of elements of a memory."""
    assert isinstance(memory.type, MemRefType)
    return prod(memory.type.get_shape())


@dataclass(frozen=True)
class Setting:
    """The values that a call passes to a kernel, as far as accesses depend on them."""

    chunks: int
    numbers: frozenset[tuple[int, int]] = frozenset()
    """Arguments that hold sizes, each with its value."""
    shared: frozenset[tuple[int, int]] = frozenset()
    """Pairs of arguments (operand, result) with the same memory."""


class Sites:
    """The accesses of a kernel in a setting."""

    def __init__(self, kernel: func.FuncOp, setting: Setting) -> None:
        block = kernel.body.block
        self.arguments = block.args[1:]
        self.chunk = Loop(Form(setting.chunks))
        self.found: list[Site] = []
        self.assumed: set[str] = set()
        """Facts that depend on data."""
        self._setting = setting
        self._sizes = dict(setting.numbers)
        self._forms: dict[SSAValue, Form] = {block.args[0]: counter(self.chunk)}
        self._certain = True
        self._conditions: tuple[tuple[Form, bool], ...] = ()
        if setting.chunks:
            self.chunk.ticks = self._walk(block, (self.chunk,), (), 0)

    def memories(self) -> dict[Memory, list[Site]]:
        """The accesses of each memory."""
        found = dict[Memory, list[Site]]()
        for site in self.found:
            found.setdefault(site.memory, []).append(site)
        return found

    # The walk

    def _walk(
        self, block: Block, loops: tuple[Loop, ...], outer: tuple[int, ...], start: int
    ) -> int:
        """
        Adds the accesses of a block; returns the number of its operations, over all trips.

        `outer` is the time of `Site.times` without its last position, which counts from `start`.
        """
        tick = start
        for op in block.ops:
            tick += 1
            match op:
                case scf.ForOp():
                    tick += self._loop(op, loops, (*outer, tick))
                case scf.IfOp():
                    tick += self._branch(op, loops, outer, tick)
                case memref.LoadOp():
                    self._add(op, op.memref, False, op.indices, 1, loops, (*outer, tick))
                case memref.StoreOp():
                    self._add(op, op.memref, True, op.indices, 1, loops, (*outer, tick))
                case vector.LoadOp():
                    width = _lanes(op.result.type)
                    self._add(op, op.base, False, op.indices, width, loops, (*outer, tick))
                case vector.StoreOp():
                    width = _lanes(op.vector.type)
                    self._add(op, op.base, True, op.indices, width, loops, (*outer, tick))
                case memref.CopyOp():
                    self._whole(op, op.source, op.destination, loops, (*outer, tick))
                    tick += 1
                case SendOp() | ReceiveOp():
                    self._whole(op, op.source, op.target, loops, (*outer, tick))
                    tick += 1
                case _:
                    assert not op.regions, f"{op.name} has no accesses that validation knows"
        return tick - start

    def _loop(self, op: scf.ForOp, loops: tuple[Loop, ...], times: tuple[int, ...]) -> int:
        lower, upper = self.form(op.lb), self.form(op.ub)
        step = constant_of(op.step)
        assert step, "a loop has a constant step"
        trips = applied("/", applied("max", upper - lower, Form(0)) + Form(step - 1), Form(step))
        if trips.number == 0:
            return 0
        index, was_certain = op.body.block.args[0], self._certain
        if trips.is_unknown or math.isinf(trips.bounds[1]):
            loop, number = Loop(Form(1)), unknown((0, math.inf))
            self._certain = False
            self.assumed.add("trip counts")
        else:
            loop = Loop(trips)
            number = counter(loop)
        self._forms[index] = lower + number.scaled(step)
        loop.ticks = self._walk(op.body.block, (*loops, loop), times, 0)
        self._certain = was_certain
        return loop.most * loop.ticks

    def _branch(
        self, op: scf.IfOp, loops: tuple[Loop, ...], outer: tuple[int, ...], tick: int
    ) -> int:
        condition = self.form(op.cond)
        conditions, certain, first = self._conditions, self._certain, len(self.found)
        taken = 0
        for wanted, region in ((True, op.true_region), (False, op.false_region)):
            if not region.blocks or condition.number not in (None, int(wanted)):
                continue
            if condition.is_unknown:
                self._certain = False
            elif condition.number is None:
                self._conditions = (*conditions, (condition, wanted))
            taken += self._walk(region.block, loops, outer, tick + taken)
            self._conditions, self._certain = conditions, certain
        if condition.is_unknown and certain:
            self._settle(first)
        return taken

    def _settle(self, first: int) -> None:
        """Makes writes certain that both branches of a decision by data do."""
        known = dict[object, int]()
        for at, site in enumerate(self.found[first:], first):
            key = (site.memory, site.index, site.width, site.loops, site.conditions)
            if site.writes and not site.index.is_unknown and known.setdefault(key, at) != at:
                self.found[at] = replace(site, certain=True)

    def _add(
        self,
        op: Operation,
        memory: SSAValue,
        writes: bool,
        indices: Sequence[SSAValue],
        width: int,
        loops: tuple[Loop, ...],
        times: tuple[int, ...],
    ) -> None:
        index = self._index(memory, indices)
        if index.is_unknown:
            self.assumed.add("indices")
        certain = self._certain and not index.is_unknown
        made = Site(op, memory, writes, index, width, loops, self._conditions, times, certain)
        self.found.append(made)

    def _whole(
        self,
        op: Operation,
        source: SSAValue,
        target: SSAValue,
        loops: tuple[Loop, ...],
        times: tuple[int, ...],
    ) -> None:
        """Adds a read of the whole source, then a write of the whole target."""
        after = (*times[:-1], times[-1] + 1)
        for memory, writes, time in ((source, False, times), (target, True, after)):
            made = Site(
                op, memory, writes, Form(0), elements_of(memory), loops, self._conditions, time,
                self._certain,
            )  # fmt: skip
            self.found.append(made)

    def _index(self, memory: SSAValue, indices: Sequence[SSAValue]) -> Form:
        """The number of an element in row-major order."""
        assert isinstance(memory.type, MemRefType)
        found = Form(0)
        for size, index in zip(memory.type.get_shape(), indices, strict=True):
            found = found.scaled(size) + self.form(index)
        return found

    # Values

    def form(self, value: SSAValue) -> Form:
        """The value of an index or a condition."""
        waiting = [value]
        while waiting:
            one = waiting[-1]
            if one in self._forms:
                waiting.pop()
                continue
            owner = one.owner
            missing = [] if isinstance(owner, Block) else [
                operand for operand in _operands(owner) if operand not in self._forms
            ]  # fmt: skip
            if missing:
                waiting += missing
                continue
            self._forms[waiting.pop()] = self._value(one)
        return self._forms[value]

    def _value(self, value: SSAValue) -> Form:
        op = value.owner
        number = constant_of(value)
        if number is not None:
            return Form(number)
        if isinstance(op, Block):
            return unknown(_bounds_of(value.type))
        operands = [self._forms[operand] for operand in _operands(op)]
        if isinstance(op, memref.LoadOp) and isinstance(op.memref, BlockArgument):
            size = self._sizes.get(op.memref.index - 1)
            if size is not None and op.memref in self.arguments:
                return Form(size)
        if isinstance(op, ApartOp):
            pair = [_number(self.arguments, one) for one in (op.lhs, op.rhs)]
            shared = {(pair[0], pair[1]), (pair[1], pair[0])} & self._setting.shared
            return Form(0 if shared else 1)
        if isinstance(op, arith.CmpiOp) and _is_number(op.lhs.type):
            return _compared(op.predicate.value.data, *operands)
        if type(op) in _ARITHMETIC and _is_number(value.type):
            return _ARITHMETIC[type(op)](*operands)
        return unknown(_bounds_of(value.type))


def _number(arguments: Sequence[SSAValue], memory: SSAValue) -> int:
    return next((at for at, one in enumerate(arguments) if one is memory), -1)


def _lanes(type_: Attribute) -> int:
    assert isinstance(type_, VectorType)
    return prod(type_.get_shape())


def _is_number(type_: Attribute) -> bool:
    """Whether a type holds indices or conditions: narrower integers would wrap around."""
    return isinstance(type_, IndexType) or (
        isinstance(type_, IntegerType) and type_.width.data in (1, 64)
    )


def _bounds_of(type_: Attribute) -> Bounds:
    return (0, 1) if isinstance(type_, IntegerType) and type_.width.data == 1 else ANYTHING


def _operands(op: Operation) -> Iterator[SSAValue]:
    """The operands that a value is computed from, if it is an index or a condition."""
    if type(op) in _ARITHMETIC or isinstance(op, arith.CmpiOp):
        yield from op.operands


def _compared(predicate: int, lhs: Form, rhs: Form) -> Form:
    """`arith.cmpi`: eq, ne, then lt, le, gt, ge of signed and of unsigned numbers."""
    if predicate in (0, 1):
        return applied(("==", "!=")[predicate], lhs, rhs)
    name, swapped = (("<", False), ("<=", False), ("<", True), ("<=", True))[(predicate - 2) % 4]
    return applied(name, rhs, lhs) if swapped else applied(name, lhs, rhs)


def _function(name: str) -> Callable[..., Form]:
    return lambda *operands: applied(name, *operands)


_ARITHMETIC: Mapping[type[Operation], Callable[..., Form]] = {
    arith.AddiOp: lambda a, b: a + b,
    arith.SubiOp: lambda a, b: a - b,
    arith.MuliOp: _function("*"),
    arith.DivSIOp: _function("/"),
    arith.DivUIOp: _function("/"),
    arith.RemSIOp: _function("%"),
    arith.RemUIOp: _function("%"),
    arith.MinSIOp: _function("min"),
    arith.MinUIOp: _function("min"),
    arith.MaxSIOp: _function("max"),
    arith.MaxUIOp: _function("max"),
    arith.SelectOp: _function("select"),
    arith.AndIOp: _function("and"),
    arith.OrIOp: _function("or"),
    arith.IndexCastOp: lambda a: a,
}
"""Arithmetic on indices; operands of unsigned operations are not negative."""
