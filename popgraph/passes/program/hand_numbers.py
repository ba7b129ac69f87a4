"""Kernel constants as parameters, so that kernels of other sizes share a C function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import IndexType, MemRefType, ModuleOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from popgraph.dialects.tile import CallOp, PrefetchOp, ProgramOp
from popgraph.dialects.tile.loops.handed import hand, natural
from popgraph.dialects.unchecked import copy_of, operands_of, refill
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import SPEED, Options
from popgraph.passes.properties import UNHANDED

_Candidate: TypeAlias = tuple[Operation, scf.ForOp | None]
"""An operation that may be marked, and the innermost loop around it."""
_CANDIDATES = (scf.ForOp, arith.MuliOp, arith.MinSIOp)


@dataclass(frozen=True)
class HandNumbers(Pass):
    """
    Marks constants of kernels that callers pass, so that kernels of other sizes are equal C.

    scf.for %i = %zero to %c100  ->  the same {handed = [1]}

    Marked are bounds of loops around long loops, and strides and limits there. Further inside, the
    C compiler has to know trip counts and steps. There, only factors of quotients and strides of
    prefetches are marked. The choice depends on the loop structure (zero lower bounds, short trip
    counts), not on the values. Kernels with a short sum in a short sum, as over windows, get no
    parameters: they took up to a fifth longer.

    With ten lengths of a 4-layer encoder, a new one takes GCC 0.43 s of CPU instead of 0.54 s.

    The constants stay operands: checks of bounds and counts of work read a kernel without its
    calls, and C for readers (`popgraph emit`) has the numbers.

    With `smallest`, kernels of a program that differ only in such constants become one function. It
    has a parameter for each constant that differs, and one for constants that are always equal.
    Only if the parameters of all calls are shorter than the code of the other kernels.
    """

    name = "hand-numbers"
    LOSES = (UNHANDED,)
    most: int = 40
    """Parameters of a kernel that gets any: C guarantees 127 in all (C11 5.2.4.1)."""
    short: int = 16
    """Iterations of a loop that a C compiler may unroll."""
    least: int = 100
    """Operations of a kernel, at least: a smaller one compiles fast, and may run briefly."""
    smallest: bool = False
    """Whether kernels of one program share code; otherwise, kernels of several programs do."""
    parameter: int = 1
    """
    Operations of a kernel whose code is as long as passing a parameter.

    On a Cortex-M4 with GCC 12, a parameter takes about 6 bytes in each call, an operation 4 to 6.
    """

    @classmethod
    def of(cls, options: Options) -> HandNumbers:
        return cls(smallest=options.soon or options.optimize != SPEED)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        if self.smallest:
            self._share(module)
            return
        for function in module.ops:
            if isinstance(function, func.FuncOp) and function.body.blocks:
                marks = list(self._handed(function))
                if sum(len(positions) for _, positions in marks) <= self.most:
                    for op, positions in marks:
                        hand(op, positions)

    def _share(self, module: ModuleOp) -> None:
        """Marks the constants in which kernels of one form differ."""
        programs = [op for op in module.ops if isinstance(op, ProgramOp)]
        calls = Counter(
            op.callee.string_value()
            for program in programs
            for op in program.body.block.ops
            if isinstance(op, CallOp)
        )
        similar, alike = dict[Hashable, list[func.FuncOp]](), dict[Hashable, list[_Form]]()
        for function in module.ops:
            # Kernels of `prepare` run once, at load, and are not in exported C.
            if isinstance(function, func.FuncOp) and function.sym_name.data in calls:
                similar.setdefault(_skeleton(function.body), []).append(function)
        for functions in similar.values():
            # A kernel unlike all others keeps its constants: no form is needed to see that.
            for form in map(_Form.of, functions) if len(functions) > 1 else ():
                alike.setdefault(tuple(form.key), []).append(form)
        for forms in alike.values():
            columns = [*zip(*(form.values for form in forms), strict=True)]
            numbers = {column: 0 for column in columns if len({*column}) > 1}
            kernels = len({tuple(form.values) for form in forms})
            count = sum(calls[form.function.sym_name.data] for form in forms)
            cost = self.parameter * len(numbers) * count
            if len(numbers) <= self.most and cost < (kernels - 1) * forms[0].operations:
                numbers = {column: number for number, column in enumerate(numbers)}
                for form in forms:
                    form.apply([numbers.get(column) for column in columns])

    def _handed(self, function: func.FuncOp) -> Iterator[tuple[Operation, list[int]]]:
        """The operations to mark, in order, with positions of operands."""
        found = list[_Candidate]()
        if _count_operations(function.body.block, None, found) < self.least:
            return
        around = {op: holder for op, holder in found if isinstance(op, scf.ForOp)}
        if any(
            self._is_short_sum(loop) and self._is_short_sum(holder)
            for loop, holder in around.items()
        ):
            return
        outer = self._outer(around)
        for op, holder in found:
            wanted: tuple[int, ...] = ()
            if isinstance(op, scf.ForOp):
                wanted = (0, 1) if op in outer else ()
            elif holder is None or holder in outer or _is_no_step(op):
                wanted = (1,)
            if positions := [at for at in wanted if natural(op.operands[at])]:
                yield op, positions

    def _outer(self, around: dict[scf.ForOp, scf.ForOp | None]) -> set[scf.ForOp]:
        """The loops around long loops; a compiler unrolls short ones, as over a window."""
        outer = set[scf.ForOp]()
        for loop, holder in reversed(around.items()):  # inner loops first
            if holder is not None and (loop in outer or not self._is_short(loop)):
                outer.add(holder)
        return outer

    def _is_short_sum(self, loop: scf.ForOp | None) -> bool:
        return loop is not None and len(loop.iter_args) > 0 and self._is_short(loop)

    def _is_short(self, loop: scf.ForOp) -> bool:
        low, high, step = (natural(bound) for bound in (loop.lb, loop.ub, loop.step))
        return low is not None and high is not None and high - low <= self.short * (step or 0)


_SHARED = {
    *(scf.ForOp, arith.AddiOp, arith.SubiOp, arith.MuliOp, arith.MinSIOp, arith.MaxSIOp),
    arith.CmpiOp,
}
"""Operations whose constants may be parameters; divisions by a constant are multiplications."""

_OFFSETS = (arith.AddiOp, arith.MuliOp)


@final
@dataclass(eq=False)
class _Node:
    """An operation of a form, or a copy of an offset for one of its uses."""

    op: Operation
    operands: list[SSAValue | _Node]
    is_copy: bool = False
    reads_outer: bool = False
    """Whether it reads an offset of an outer block that has no copy yet."""
    blocks: list[list[_Node]] = field(default_factory=list)


def _separated(block: Block) -> tuple[list[_Node], list[_Node]]:
    """
    The operations of a block with a copy of each offset for each use, before the use.

    Offsets are sums and products of indices. A kernel whose input and output have the same pitch
    computes an offset once, others twice. In this form both are equal, in the order of the
    operations, too. The second list has the readers of offsets that outer blocks have to copy.
    """
    nodes, outer = list[_Node](), list[_Node]()
    for op in block.ops:
        if _is_offset(op):
            continue
        node = _Node(op, [*operands_of(op)])
        users = [node]
        for region in op.regions:
            for inner in region.blocks:
                found, readers = _separated(inner)
                node.blocks.append(found)
                users += readers
        first = len(nodes)
        for user in users:
            _copy_offsets(user, block, nodes)
        outer += [each for each in (*nodes[first:], *users) if each.reads_outer]
        nodes.append(node)
    return nodes, outer


def _copy_offsets(user: _Node, block: Block, nodes: list[_Node]) -> None:
    """Adds copies of the offsets in `block` that an operation reads, operands first."""
    user.reads_outer = False
    for place, operand in enumerate(user.operands):
        if type(operand) is _Node or type(operand.owner) not in _OFFSETS:
            continue
        offset = operand.owner
        assert isinstance(offset, Operation)
        if not _is_offset(offset):
            continue
        if offset.parent is not block:
            user.reads_outer = True
            continue
        copy = user.operands[place] = _Node(offset, [*operands_of(offset)], is_copy=True)
        _copy_offsets(copy, block, nodes)
        nodes.append(copy)


def _write(nodes: Sequence[_Node], block: Block) -> None:
    """Gives a block the operations of its form; the nodes then have the new copies."""
    offsets = [op for op in block.ops if _is_offset(op)]
    for node in nodes:
        if node.is_copy:
            offset = node.op
            node.op = copy_of(offset, [_value(operand) for operand in node.operands])
            node.op.results[0].name_hint = offset.results[0].name_hint
            continue
        for place, operand in enumerate(node.operands):
            if type(operand) is _Node:
                node.op.operands[place] = _value(operand)
        inner = (each for region in node.op.regions for each in region.blocks)
        for found, held in zip(node.blocks, inner, strict=True):
            _write(found, held)
    refill(block, [node.op for node in nodes])
    for offset in offsets:
        offset.drop_all_references()


def _value(operand: SSAValue | _Node) -> SSAValue:
    return operand.op.results[0] if type(operand) is _Node else operand


def _skeleton(body: Region) -> Hashable:
    """The classes of the operations, without offsets and constants: equal in kernels of a form."""
    return tuple(
        (type(op), *map(_skeleton, op.regions)) if op.regions else type(op)
        for block in body.blocks
        for op in block.ops
        if type(op) is not arith.ConstantOp and not _is_offset(op)
    )


@dataclass
class _Form:
    """The form of a kernel: everything except its constants, and these in order."""

    function: func.FuncOp
    nodes: list[_Node]
    """Its operations, in which each use of an index has an operation of its own."""
    key: list[Hashable] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    operands: list[tuple[_Node, int]] = field(default_factory=list)
    """The operations with these constants, and the positions among their operands."""
    operations: int = 0
    """The number of operations, without constants."""
    known: dict[SSAValue | _Node, int] = field(default_factory=dict)
    """The numbers of values, in the order of their definitions."""

    @classmethod
    def of(cls, function: func.FuncOp) -> _Form:
        """The form of a function."""
        body = function.body.block
        nodes, _ = _separated(body)
        made = cls(function, nodes)
        made._block(nodes, body)
        return made

    def _block(self, nodes: Sequence[_Node], block: Block) -> None:
        for argument in block.args:
            self._define(argument, argument.type)
        for node in nodes:
            op = node.op
            if type(op) is arith.ConstantOp:
                continue
            self.operations += 1
            self.key += [op.name, *sorted(op.properties.items()), *sorted(op.attributes.items())]
            for place, operand in enumerate(node.operands):
                self._operand(node, place, operand)
            for result in op.results:
                self._define(node if node.is_copy else result, result.type)
            inner = (each for region in op.regions for each in region.blocks)
            for found, held in zip(node.blocks, inner, strict=True):
                self._block(found, held)
                self.key.append("end")

    def _define(self, value: SSAValue | _Node, type_: Attribute) -> None:
        self.known[value] = len(self.known)
        # The length of memory is not in the C of its accesses, which have a single index.
        if type(type_) is MemRefType and type(value) is BlockArgument:
            self.key += [type_.element_type, len(type_.get_shape()) > 1 and type_]
        else:
            self.key.append(type_)

    def _operand(self, node: _Node, place: int, operand: SSAValue | _Node) -> None:
        if type(operand) is _Node or type(operand.owner) is not arith.ConstantOp:
            self.key.append(self.known[operand])
        elif type(node.op) in _SHARED and (number := natural(operand)) is not None:
            self.key.append("number")
            self.values.append(number)
            self.operands.append((node, place))
        else:
            self.key += [operand.owner.value, operand.type]

    def apply(self, numbers: Sequence[int | None]) -> None:
        """Makes constants parameters with these numbers."""
        _write(self.nodes, self.function.body.block)
        marks = dict[Operation, list[tuple[int, int]]]()
        for (node, place), number in zip(self.operands, numbers, strict=True):
            if number is not None:
                marks.setdefault(node.op, []).append((place, number))
        for op, found in marks.items():
            hand(op, [place for place, _ in found], [number for _, number in found])


def _is_offset(op: Operation) -> bool:
    """Whether an operation is a sum or a product of indices with a use."""
    return (
        type(op) in _OFFSETS
        and type(op.results[0].type) is IndexType
        and op.results[0].first_use is not None
    )


def _count_operations(block: Block, around: scf.ForOp | None, found: list[_Candidate]) -> int:
    """Finds candidates, a loop before its contents, and returns the number of operations."""
    count, op = 0, block.first_op
    while op is not None:
        count += 1
        if type(op) in _CANDIDATES:
            found.append((op, around))
        for region in op.regions:
            for inner in region.blocks:
                count += _count_operations(
                    inner, op if isinstance(op, scf.ForOp) else around, found
                )
        op = op.next_op
    return count


def _is_no_step(op: Operation) -> bool:
    """Whether no loop steps by a factor: it multiplies a quotient or addresses prefetches."""
    if not isinstance(op, arith.MuliOp):
        return False
    return isinstance(op.lhs.owner, arith.DivSIOp | arith.RemSIOp) or _is_prefetched(op.result)


def _is_prefetched(index: SSAValue) -> bool:
    """Whether an index addresses only prefetches, which nothing waits for."""
    return all(
        isinstance(use.operation, PrefetchOp)
        or (isinstance(use.operation, arith.AddiOp) and _is_prefetched(use.operation.result))
        for use in index.uses
    )
