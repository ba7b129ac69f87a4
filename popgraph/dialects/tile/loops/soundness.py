"""Static checks of kernels: endless loops, constant indices out of bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import arith, func, memref, scf, vector
from xdsl.dialects.builtin import IntegerAttr, MemRefType, ModuleOp, SymbolRefAttr, VectorType
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.tile.loops.recipes import (
    check_interchanged,
    check_prefetch,
    check_split,
    check_vectorized,
)

Access = memref.LoadOp | memref.StoreOp | vector.LoadOp | vector.StoreOp


def check_chunks(chunks: IntegerAttr) -> None:
    """Raises VerifyException for a negative number of chunks."""
    if chunks.value.data < 0:
        raise VerifyException(f"a launch needs at least 0 chunks, not {chunks.value.data}")


def check_body(kernel: Operation) -> None:
    """Raises VerifyException for loops that never end and constant accesses out of bounds."""
    memories = len(kernel.regions[0].blocks[0].args) - 1 if kernel.regions[0].blocks else 0
    for op in kernel.walk():
        if isinstance(op, scf.ForOp):
            _check_step(op)
            check_prefetch(op, memories)
            check_interchanged(op)
            steps = iterations(op)
            check_split(op, steps)
            check_vectorized(op, None if steps is None or steps.step != 1 else len(steps))
        elif isinstance(op, Access):
            _check_access(op)


def called(op: Operation, callee: SymbolRefAttr) -> func.FuncOp | None:
    """The kernel of this name in the module of an operation, if both exist."""
    home: Operation | None = op
    while home is not None and not isinstance(home, ModuleOp):
        home = home.parent_op()
    name = callee.string_value()
    functions = () if home is None else home.ops
    return next(
        (one for one in functions if isinstance(one, func.FuncOp) and one.sym_name.data == name),
        None,
    )


def constant_of(value: SSAValue) -> int | None:
    """The value of a constant integer or index; None if it is computed."""
    owner = value.owner
    if type(owner) is arith.ConstantOp:
        number = owner.properties["value"]
        if isinstance(number, IntegerAttr):
            return int(number.value.data)
    return None


def iterations(loop: Operation) -> range | None:
    """The values of a loop's counter; None unless its bounds and step are constants."""
    lower, upper, step = map(constant_of, tuple(loop.operands)[:3])
    if lower is None or upper is None or not step:
        return None
    return range(lower, upper, step)


def _check_step(loop: scf.ForOp) -> None:
    step = constant_of(loop.step)
    if step is None or step <= 0:
        what = "a computed value" if step is None else str(step)
        raise VerifyException(f"a loop step must be a positive constant, not {what}")


def _check_access(op: Access) -> None:
    place = op.base if isinstance(op, vector.LoadOp | vector.StoreOp) else op.memref
    assert isinstance(place.type, MemRefType)
    for index, (size, width) in _bounds(op, place.type, op.indices):
        number = constant_of(index)
        if number is not None and size >= 0 and not 0 <= number <= size - width:
            read = (
                f"elements {number} to {number + width - 1}" if width > 1 else f"element {number}"
            )
            raise VerifyException(f"{op.name} accesses {read} of memory of size {size}")


def _bounds(
    op: Access, type_: MemRefType, indices: Sequence[SSAValue]
) -> Iterator[tuple[SSAValue, tuple[int, int]]]:
    """Each index with the size of its axis and the number of elements accessed along it."""
    sizes = type_.get_shape()
    widths = [1] * len(sizes)
    held = op.results[0] if isinstance(op, vector.LoadOp) else op.operands[0]
    if isinstance(held.type, VectorType) and sizes:
        widths[-1] = held.type.get_shape()[-1]
    return zip(indices, zip(sizes, widths, strict=True), strict=True)
