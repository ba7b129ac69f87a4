"""Kernel constants as parameters, so that kernels of other sizes share a C function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import IndexType, MemRefType, ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue

from popgraph.dialects.tile import CallOp, PrefetchOp, ProgramOp
from popgraph.dialects.tile.loops.handed import hand, natural
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
        alike = dict[Hashable, list[_Form]]()
        for function in module.ops:
            # Kernels of `prepare` run once, at load, and are not in exported C.
            if isinstance(function, func.FuncOp) and function.sym_name.data in calls:
                form = _Form.of(function)
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


_SHARED = (
    *(scf.ForOp, arith.AddiOp, arith.SubiOp, arith.MuliOp, arith.MinSIOp, arith.MaxSIOp),
    arith.CmpiOp,
)
"""Operations whose constants may be parameters; divisions by a constant are multiplications."""

_OFFSETS = (arith.AddiOp, arith.MuliOp)


@dataclass
class _Form:
    """The form of a kernel: everything except its constants, and these in order."""

    function: func.FuncOp
    body: Region
    """Its body, in which each use of an index has an operation of its own."""
    key: list[Hashable] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    operands: list[tuple[Operation, int]] = field(default_factory=list)
    """The operations with these constants, and the positions among their operands."""
    operations: int = 0
    """The number of operations, without constants."""
    known: dict[SSAValue, int] = field(default_factory=dict)
    """The numbers of values, in the order of their definitions."""

    @classmethod
    def of(cls, function: func.FuncOp) -> _Form:
        """The form of a function."""
        made = cls(function, function.body.clone())
        _separate(made.body.block)
        made._block(made.body.block)
        return made

    def _block(self, block: Block) -> None:
        self._define(block.args)
        for op in block.ops:
            if type(op) is arith.ConstantOp:
                continue
            self.operations += 1
            self.key += [op.name, *sorted(op.properties.items()), *sorted(op.attributes.items())]
            for place, operand in enumerate(op.operands):
                self._operand(op, place, operand)
            self._define(op.results)
            for region in op.regions:
                for inner in region.blocks:
                    self._block(inner)
                    self.key.append("end")

    def _define(self, values: Sequence[SSAValue]) -> None:
        for value in values:
            self.known[value] = len(self.known)
            type_ = value.type
            # The length of memory is not in the C of its accesses, which have a single index.
            if isinstance(type_, MemRefType) and isinstance(value.owner, Block):
                self.key += [type_.element_type, len(type_.get_shape()) > 1 and type_]
            else:
                self.key.append(type_)

    def _operand(self, op: Operation, place: int, operand: SSAValue) -> None:
        number = natural(operand) if isinstance(op, _SHARED) else None
        if number is not None:
            self.key.append("number")
            self.values.append(number)
            self.operands.append((op, place))
        elif isinstance(operand.owner, arith.ConstantOp):
            self.key += [operand.owner.value, operand.type]
        else:
            self.key.append(self.known[operand])

    def apply(self, numbers: Sequence[int | None]) -> None:
        """Makes constants parameters with these numbers."""
        marks = dict[Operation, list[tuple[int, int]]]()
        for (op, place), number in zip(self.operands, numbers, strict=True):
            if number is not None:
                marks.setdefault(op, []).append((place, number))
        for op, found in marks.items():
            hand(op, [place for place, _ in found], [number for _, number in found])
        self.function.detach_region(0)
        self.function.add_region(self.body)


def _separate(block: Block) -> None:
    """
    Moves sums and products of indices to their uses, and copies them for each use.

    A kernel whose input and output have the same pitch computes an offset once, others twice. In
    this form both are equal, in the order of the operations, too.
    """
    placed = set[Operation]()
    for op in [op for op in block.ops if not _is_offset(op)]:
        for region in op.regions:
            for inner in region.blocks:
                _separate(inner)
        for user in op.walk():
            _place_operands(user, op, block, placed)


def _place_operands(user: Operation, at: Operation, block: Block, placed: set[Operation]) -> None:
    """Moves the offsets that an operation reads from this block, or copies of them, before `at`."""
    for place, operand in enumerate(user.operands):
        offset = operand.owner
        if isinstance(offset, Operation) and offset.parent is block and _is_offset(offset):
            if offset in placed:
                offset = offset.clone()
                user.operands[place] = offset.results[0]
            else:
                offset.detach()
            placed.add(offset)
            block.insert_op_before(offset, at)
            _place_operands(offset, offset, block, placed)


def _is_offset(op: Operation) -> bool:
    return type(op) in _OFFSETS and isinstance(op.results[0].type, IndexType)


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
