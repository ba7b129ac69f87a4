"""Unrolling of marked loops in one kernel: copies iterations, promotes memory to values."""

from __future__ import annotations

from xdsl.dialects import arith, memref, scf, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from popgraph.dialects.tile.loops.soundness import constant_of
from popgraph.dialects.unchecked import copy_of, create_unchecked, operands_of
from popgraph.passes.loops.editor import Editor
from popgraph.passes.loops.marked import (
    LOADS,
    Access,
    MarkedLoops,
    is_deferred,
    is_linear,
    is_pure,
    register_of,
)
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import lanes_of
from popgraph.support.tuning import Target

Slot = tuple[SSAValue, int]
"""A register: its former memory, and its index there."""


def unroll(block: Block, target: Target) -> None:
    """Unrolls the marked loops of a kernel; loops inside copied operations follow."""
    while (marked := MarkedLoops(block)).steps:
        if not Unrolling(block, target, marked).run():
            break


class Unrolling:
    """
    Unrolls the marked loops of a body, except inside other loops of marked ones, which are copied.

    A value in marked loops has a copy for each combination of the counters that it depends on.
    """

    def __init__(self, block: Block, target: Target, marked: MarkedLoops) -> None:
        self.body, self.writer, self.marked = block, Editor(block, target), marked
        self.counters: dict[SSAValue, int] = {}
        self.values: dict[object, SSAValue] = {}
        self.loads: dict[object, SSAValue] = {}
        """Loads of the current nest of marked loops, which store to registers only."""
        self.registers: dict[SSAValue, dict[int, SSAValue]] = {
            access.memory: {} for access in self.marked.registers.values()
        }
        """The current value of each register, by memory and index."""
        self.copied = False

    def run(self) -> bool:
        """Unrolls; returns whether marked loops are left, in copies."""
        self._block(self.body)
        self.writer.close()
        return self.copied

    # Outside of marked loops

    def _block(self, block: Block) -> None:
        """
        Edits a block outside marked loops.

        In a block with marked loops, index arithmetic is deferred until its first use.
        """
        writer, steps, operations = self.writer, self.marked.steps, list(block.ops)
        defers = any(op.regions and op in steps for op in operations)
        for op in operations:
            if not op.regions:
                if type(op) is memref.AllocaOp and op.memref in self.registers:
                    writer.drop(op)
                elif defers and is_deferred(op):
                    writer.defer(op)
                else:
                    writer.keep(op)
            elif op in steps:
                self._unroll(op)
                self.loads.clear()  # The next loop may store to the memory that this one loaded.
                writer.drop(op)
            elif op in self.marked.around:
                self._around(op)
            else:
                writer.keep(op)

    def _around(self, op: Operation) -> None:
        """Edits an operation around marked loops; a loop then carries the registers it changes."""
        for operand in operands_of(op):
            self.writer.need(operand)
        changed = [
            (memory, at)
            for memory in self.marked.changed.get(op, ())
            # In order of their index: the C does not depend on the order of stores.
            for at in sorted(self.registers[memory])
        ]
        before = [self.registers[memory][at] for memory, at in changed]
        for region in op.regions:
            for block in region.blocks:
                for slot, value in zip(changed, before, strict=True):
                    self._set(slot, block.insert_arg(value.type, len(block.args)))
                with self.writer.inside(block):
                    self._block(block)
        self.writer.insert(self._carrying(op, changed, before) if changed else op)

    def _carrying(self, op: Operation, changed: list[Slot], before: list[SSAValue]) -> Operation:
        """A loop with registers as carried values, which are arguments of its body already."""
        assert isinstance(op, scf.ForOp)
        body, last = op.body, op.body.block.last_op
        assert last is not None
        last.operands = [
            *last.operands,
            *(self.registers[memory][at] for memory, at in changed),
        ]
        operands = [*op.operands, *before]
        types = [value.type for value in operands[3:]]
        op.detach_region(body)
        made = create_unchecked(scf.ForOp, *operands, types=types, regions=(body,))
        made.attributes.update(op.attributes)
        for old, new in zip(op.results, made.results, strict=False):
            old.replace_all_uses_with(new)
        for slot, value in zip(changed, made.results[len(op.results) :], strict=True):
            self._set(slot, value)
        self.writer.drop(op)
        return made

    def _set(self, slot: Slot, value: SSAValue) -> None:
        memory, at = slot
        self.registers[memory][at] = value

    # In marked loops

    def _unroll(self, op: Operation) -> None:
        """Writes a copy of the body of a marked loop for each iteration."""
        body, emitted = op.regions[0].blocks[0], self.marked.emitted(op)
        counter, *arguments = body.args
        last = body.last_op
        assert last is not None
        carried = list(map(self._value, operands_of(op)[3:]))
        for step in self.marked.steps[op]:
            self.counters[counter] = step
            for old, new in zip(arguments, carried, strict=True):
                self.values[self._key(old)] = new
            for inner in emitted:
                if isinstance(inner, Access):
                    self._access(inner)
                else:
                    self._iterate(inner)
            carried = list(map(self._value, operands_of(last)))
        for result, new in zip(op.results, carried, strict=True):
            if result in self.marked.depends:
                self.values[self._key(result)] = new
            else:
                result.replace_all_uses_with(new)

    def _iterate(self, op: Operation) -> None:
        """Writes an operation for the current iteration of the marked loops around it."""
        if op.regions:
            if op in self.marked.steps:
                self._unroll(op)
            else:
                self._clone(op)
        elif is_pure(op):
            self._value(op.results[0])
        else:
            self._note(op, copy_of(op, list(map(self._value, operands_of(op)))))

    def _access(self, access: Access) -> None:
        """Replaces an access of promoted memory: a load by a value, a store by a new one."""
        slots, at = self.registers[access.memory], self._index(access.index).constant
        if access.stored is None:
            self.values[self._key(access.op.results[0])] = self._held(slots, at, access.type)
        else:
            slots[at] = self._value(access.stored)

    def _held(self, slots: dict[int, SSAValue], at: int, type_: Attribute) -> SSAValue:
        """The value of a register, or some of its lanes."""
        # An epilogue may read a tile in narrower vectors than its sums have: 7 valid lanes of 16
        # are 4 + 1 + 1 + 1.
        value = slots.get(at)
        if value is not None and value.type == type_:
            return value
        start = register_of({slot: one.type for slot, one in slots.items()}, at, type_)
        value = slots[start]
        if isinstance(type_, VectorType):
            (lanes,) = type_.get_shape()
            return self.writer.shuffle(value, value, range(at - start, at - start + lanes))
        return self.writer.extract(value, at - start)

    def _clone(self, op: Operation) -> None:
        """Copies an operation with its regions; marked loops in it are unrolled afterwards."""
        self.copied = True
        used = {operand for inner in op.walk() for operand in inner.operands}
        defined = {result for inner in op.walk() for result in inner.results}
        blocks = [
            block for inner in op.walk() for region in inner.regions for block in region.blocks
        ]
        defined.update(argument for block in blocks for argument in block.args)
        self._note(op, op.clone({value: self._value(value) for value in used - defined}))

    def _note(self, op: Operation, made: Operation) -> None:
        """Inserts a copy of an operation for the current iteration."""
        self.writer.insert(made)
        for old, new in zip(op.results, made.results, strict=True):
            self.values[self._key(old)] = new

    # Values

    def _key(self, old: SSAValue) -> object:
        """The key of a value in marked loops, in the current iteration."""
        # Only counters that it depends on: a factor that all rows share has one key, and one copy.
        return (old, *map(self.counters.__getitem__, self.marked.depends[old]))

    def _value(self, old: SSAValue) -> SSAValue:
        """The copy of a value for the current iteration; pure operations are written now."""
        if old not in self.marked.depends:
            self.writer.need(old)
            return old
        key = self._key(old)
        found = self.values.get(key)
        if found is None:
            found = self.values[key] = self._computed(old)
        return found

    def _computed(self, old: SSAValue) -> SSAValue:
        op = old.owner
        if isinstance(op, Block) or is_linear(op):
            return self.writer.value(self._index(old))
        if type(op) in LOADS:
            return self._loaded(op)
        return self._pure(op)

    def _loaded(self, op: Operation) -> SSAValue:
        """A load that iterations of marked loops share, as they do not store to its memory."""
        operands = list(map(self._value, operands_of(op)))
        key = (lanes_of(op.results[0]), *operands)
        found = self.loads.get(key)
        if found is None:
            found = self.loads[key] = self.writer.add(copy_of(op, operands))
        return found

    def _pure(self, op: Operation) -> SSAValue:
        """Writes a pure operation at the outermost level that has its operands."""
        writer, operands = self.writer, list(map(self._value, operands_of(op)))
        if type(op) is vector.BroadcastOp:
            return writer.broadcast(operands[0], lanes_of(op.results[0]))
        if type(op) in (arith.DivSIOp, arith.RemSIOp):
            lhs, rhs = map(constant_of, operands)
            if lhs is not None and rhs is not None and lhs >= 0 < rhs:
                return writer.constant(lhs // rhs if type(op) is arith.DivSIOp else lhs % rhs)
        depth = max(map(writer.depths.__getitem__, operands), default=0)
        made = copy_of(op, operands)
        if depth == len(writer.levels) - 1:
            # Not shared: kernels have thousands of products, which differ.
            return writer.add(made)
        return writer.once(made)

    def _index(self, old: SSAValue) -> Index:
        """An index for the current iteration, with the counters of marked loops as numbers."""
        form, terms = self.marked.form(old), dict[SSAValue, int]()
        constant = form.constant
        for value, factor in form.terms.items():
            number = self.counters.get(value)
            if number is None:
                value = self._value(value)
                number = constant_of(value)
            if number is None:
                # Two old values may have the same copy: their factors add up.
                terms[value] = terms.get(value, 0) + factor
            else:
                constant += number * factor
        return Index(constant, terms)
