"""Splitting of loops over blocks in one kernel: a copy of the body for each size of block."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IndexType, MemRefType
from xdsl.ir import Block, Operation, Region, SSAValue

from popgraph.dialects.tile import PrefetchNextAttr
from popgraph.dialects.tile.loops.recipes import INTERCHANGE, PREFETCH, SPLIT
from popgraph.dialects.tile.loops.soundness import constant_of, iterations
from popgraph.dialects.unchecked import copy_of, create_unchecked, operands_of
from popgraph.passes.loops.editor import Editor
from popgraph.passes.loops.indices import enclosing, loops_in
from popgraph.passes.loops.marked import is_deferred, is_linear
from popgraph.passes.structured.analysis.panels import balanced
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


def split(kernel: Block, target: Target) -> None:
    """Splits the marked loops of a kernel; a loop that does not fit only loses its mark."""
    sizes = dict[Operation, SSAValue]()
    for loop in loops_in(kernel):
        if loop.attributes.pop(SPLIT, None) is not None:
            size = block_size(loop)
            if size is not None:
                sizes[loop] = size
    if sizes:
        Splitting(kernel, target, sizes).run()


def block_size(loop: scf.ForOp) -> SSAValue | None:
    """The size of the current block, `min(step, upper - counter)`; None if nothing computes it."""
    _, upper, most = operands_of(loop)
    for op in loop.body.block.ops:
        if type(op) is arith.MinSIOp and constant_of(op.lhs) == constant_of(most):
            left = op.rhs.owner
            if type(left) is arith.SubiOp and operands_of(left) == (upper, loop.body.block.args[0]):
                return op.result
    return None


class Splitting:
    """Splits loops over blocks, whose bodies compute these `sizes` of the current block."""

    def __init__(self, kernel: Block, target: Target, sizes: Mapping[Operation, SSAValue]) -> None:
        self._kernel, self._writer, self._sizes = kernel, Editor(kernel, target), sizes
        self._around = {op for loop in sizes for op in enclosing(loop)}

    def run(self) -> None:
        self._edit(self._kernel)
        self._writer.close()

    def _edit(self, block: Block) -> None:
        """
        Edits a block outside of marked loops.

        In a block with marked loops, index arithmetic is deferred until its first use.
        """
        writer, operations = self._writer, list(block.ops)
        defers = any(op.regions and op in self._sizes for op in operations)
        for op in operations:
            if op in self._sizes:
                assert isinstance(op, scf.ForOp)
                self._split(op)
                writer.drop(op)
            elif op in self._around:
                for operand in operands_of(op):
                    writer.need(operand)
                for region in op.regions:
                    for inner in region.blocks:
                        with writer.inside(inner):
                            self._edit(inner)
                writer.insert(op)
            elif defers and is_deferred(op):
                writer.defer(op)
            else:
                writer.keep(op)

    def _split(self, loop: scf.ForOp) -> None:
        """Writes the blocks of a loop: a loop for each size, or the body if one block has it."""
        found = iterations(loop)
        assert found is not None
        for blocks in balanced(found.stop - found.start, found.step):
            first = found.start + blocks.start
            copy = BlockCopy(self._writer, loop, self._sizes[loop], blocks.size)
            if blocks.count == 1:
                copy.write(Index(first))
                continue
            end = first + blocks.count * blocks.size
            with self._writer.loop(first, end, blocks.size, recipes=loop.attributes) as made:
                copy.write(Index.of(made.counter))


class BlockCopy:
    """
    Copies the body of a loop over blocks for blocks of `number` iterations.

    Index arithmetic is written again where it is used first: in a block at a constant index, it
    leaves the loops that no longer change it. `size` is the number of iterations in the old body.
    """

    def __init__(self, writer: Editor, loop: scf.ForOp, size: SSAValue, number: int) -> None:
        self._writer, self._body, self._size, self._number = writer, loop.body.block, size, number
        self._most = constant_of(loop.step) or 1
        minimum = size.owner
        assert isinstance(minimum, arith.MinSIOp)
        self._computes_size = minimum, minimum.rhs.owner
        self._first = Index()
        self._forms: dict[SSAValue, Index] = {size: Index(number)}
        """Index arithmetic of the body, in new values."""
        self._values: dict[SSAValue, SSAValue] = {}
        """New values by old ones."""
        self._loops = 0
        """The number of loops around the current operation, from the body on."""

    def write(self, first: Index) -> None:
        """Writes the body for a block that begins at the index `first`."""
        self._first = self._forms[self._body.args[0]] = first
        self._inline(self._body)

    def _inline(self, body: Block) -> None:
        """Copies the operations of a loop's body, without its terminator."""
        for op in list(body.ops)[:-1]:
            self._operation(op)

    def _operation(self, op: Operation) -> None:
        if op.regions:
            self._nested(op)
        elif type(op) is memref.AllocaOp:
            self._values[op.memref] = self._allocated(op)
        elif not self._is_arithmetic(op):
            self._copied(op)

    def _is_arithmetic(self, op: Operation) -> bool:
        """Whether an operation only computes indices, to be written where they are used."""
        computes_size = op in self._computes_size
        if not computes_size and not is_linear(op):
            return False
        lhs, rhs = map(self._form, operands_of(op))
        if type(op) is arith.AddiOp:
            self._forms[op.results[0]] = lhs + rhs
        elif type(op) is arith.SubiOp:
            self._forms[op.results[0]] = lhs + rhs.scaled(-1)
        elif type(op) is arith.MuliOp and not rhs.terms:
            self._forms[op.results[0]] = lhs.scaled(rhs.constant)
        else:
            return computes_size
        return True

    def _allocated(self, op: memref.AllocaOp) -> SSAValue:
        """Local memory for the iterations of this block."""
        type_ = op.memref.type
        assert isinstance(type_, MemRefType)
        each = prod(type_.get_shape()) // self._most
        return self._writer.alloca(type_.element_type, each * self._number)

    def _copied(self, op: Operation) -> None:
        made = copy_of(op, list(map(self._value, operands_of(op))))
        if type(op) in (arith.DivSIOp, arith.RemSIOp) and type(op.results[0].type) is IndexType:
            self._values[op.results[0]] = self._writer.once(made)
        else:
            self._insert(op, made)

    def _insert(self, op: Operation, made: Operation) -> None:
        self._writer.insert(made)
        self._values.update(zip(op.results, made.results, strict=True))

    def _nested(self, op: Operation) -> None:
        """Copies an operation with blocks."""
        if self._number == 1 and type(op) is scf.ForOp and op.ub is self._size:
            # Emitters open no loop for one row.
            self._forms[op.body.block.args[0]] = Index()
            self._inline(op.body.block)
            return
        operands = list(map(self._value, operands_of(op)))
        # `interchange-loops` moves such loops into the ones that a prefetch counts.
        counted = INTERCHANGE not in op.attributes
        self._loops += counted
        made = create_unchecked(
            type(op),
            *operands,
            types=[result.type for result in op.results],
            regions=[Region(list(map(self._block, region.blocks))) for region in op.regions],
            **op.properties,
        )
        made.attributes.update(op.attributes)
        recipe = op.attributes.get(PREFETCH)
        if isinstance(recipe, PrefetchNextAttr) and not self._first.terms:
            around = self._loops - recipe["loops"]
            made.attributes[PREFETCH] = recipe.outside_of(around, self._first.constant)
        self._loops -= counted
        self._insert(op, made)

    def _block(self, block: Block) -> Block:
        made = Block(arg_types=[argument.type for argument in block.args])
        self._values.update(zip(block.args, made.args, strict=True))
        with self._writer.inside(made):
            for op in block.ops:
                self._operation(op)
        return made

    def _form(self, old: SSAValue) -> Index:
        """The linear form of an index, in new values."""
        found = self._forms.get(old)
        if found is None:
            number = constant_of(old)
            found = Index.of(self._values.get(old, old)) if number is None else Index(number)
        return found

    def _value(self, old: SSAValue) -> SSAValue:
        """The new value of an old one; values from outside the body are unchanged."""
        found = self._values.get(old)
        if found is not None:
            return found
        form = self._forms.get(old)
        if form is None:
            self._writer.need(old)
            return old
        for term in form.terms:
            self._writer.need(term)
        found = self._values[old] = self._writer.value(form)
        return found
