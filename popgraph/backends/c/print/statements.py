"""Prints the bodies of kernels as C statements: loops, branches, loads, stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

from xdsl.dialects import arith, func, math, memref, scf, vector
from xdsl.dialects.builtin import FloatAttr, IndexType, MemRefType, bf16, f32
from xdsl.ir import Attribute, Block, Operation, SSAValue, Use

from popgraph.backends.c.print import literals, types
from popgraph.backends.c.print.conversions import cast, exact_bf16, nearest_bf16
from popgraph.backends.c.print.expressions import expression
from popgraph.backends.c.print.rows import Nearest, nearest
from popgraph.dialects import element_types
from popgraph.dialects.tile import ApartOp, DotOp, PrefetchOp, ReceiveOp, SendOp
from popgraph.dialects.tile.loops.handed import handed, natural, parameters_of
from popgraph.dialects.tile.scalars import has_nan_of_bf16, is_exact
from popgraph.support.errors import UnsupportedError
from popgraph.support.ranks.communicator import exchange_code

STACK_BYTES = 1024 * 1024
"""Bytes of the local arrays of a kernel: a quarter of a thread's stack (POPGRAPH_STACK)."""

INDEX = "i64"
"""The C type of indices."""
ALIGNMENT = 64
"""Bytes of a cache line, and of a vector of AVX-512."""


class Body:
    """Prints the statements of one function; every value gets a C variable."""

    def __init__(self, *, shared: bool = False, index: str = INDEX) -> None:
        """
        If `shared`, marked constants are parameters, and `numbers` the values to pass.

        `index` is the C type of indices.
        """
        self._shared, self._index = shared, index
        self.numbers: dict[int, int] = {}
        self.lines: list[str] = []
        self._names: dict[SSAValue, str] = {}
        self._pointers: dict[tuple[SSAValue, SSAValue], str] = {}
        self.non_negative: set[SSAValue] = set()
        """Indices that are never negative, as far as the operations show that compute them."""
        self.wide: set[SSAValue] = set()
        """Vectors rounded to bf16 whose variables are f32, as all their readers widen them."""
        self._nearest: dict[Operation, Nearest] = {}
        self._skipped: set[Operation] = set()
        self._numbers: dict[str, int] = {}
        self._depth = 1
        self._stack = 0

    def name(self, value: SSAValue) -> str:
        """The variable (or literal) of a value."""
        return self._names[value]

    def operands(self, op: Operation) -> list[str]:
        """The variables (or literals) of the operands."""
        names = [self.name(operand) for operand in op.operands]
        places = handed(op) if self._shared else ()
        for place, parameter in zip(
            places, parameters_of(op, len(self.numbers)) if places else (), strict=True
        ):
            names[place] = f"p{parameter}"
            number = natural(op.operands[place])
            assert number is not None, "marked operands are constants"
            assert self.numbers.setdefault(parameter, number) == number, "one value a parameter"
        return names

    def bind(self, value: SSAValue, text: str) -> None:
        """Sets the C text of a value."""
        self._names[value] = text

    def fresh(self, value: SSAValue, letter: str) -> str:
        """A new variable for `value`. No letter is `i` or `c`: `i8` and `c64` are types."""
        number = self._numbers.get(letter, 0)
        self._numbers[letter] = number + 1
        name = self._names[value] = f"{letter}{number}"
        return name

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def open(self, text: str) -> None:
        self.line(text)
        self._depth += 1

    def close(self, text: str = "}") -> None:
        self._depth -= 1
        self.line(text)

    def block(self, block: Block) -> None:
        """Prints the operations of a block; terminators print nothing."""
        for op in block.ops:
            found = nearest(op)
            if found is not None:
                self._nearest[op] = found
                self._skipped.update(found.steps)
        op = block.first_op
        while op is not None:
            if op not in self._skipped:
                self.statement(op)
            op = op.next_op

    def statement(self, op: Operation) -> None:
        """Prints one operation."""
        printer = _STATEMENTS.get(type(op))
        if printer is None and op.name == "complex.constant":
            # By name: programs without complex numbers do not import the dialect, which takes 7 ms.
            printer = _constant
        if printer is not None:
            printer(self, op)
            return
        if op.regions or len(op.results) != 1:
            raise UnsupportedError(f"a kernel cannot contain {op.name}")
        (result,) = op.results
        if self._is_folded(result):
            return
        found = self._nearest.get(op)
        if found is not None:
            bounds = ", ".join(
                literals.literal(FloatAttr(bound, f32), f32) for bound in (found.low, found.high)
            )
            text = f"popgraph_nearest({self.name(found.value)}, {bounds})"
            self.define(result, cast(text, "i32", types.value(result.type), None))
            return
        self.define(result, expression(op, self.operands(op)))
        if is_never_negative(op, self.non_negative):
            self.mark_non_negative(result)

    def type_of(self, value: SSAValue) -> str:
        """The C type of the variable of a value."""
        return self._index if type(value.type) is IndexType else types.value(value.type)

    def define(self, value: SSAValue, text: str) -> None:
        """Declares a variable for `value`."""
        type_ = self.type_of(value)
        self.line(f"const {type_} {self.fresh(value, 'v')} = {text};")

    def mark_non_negative(self, index: SSAValue) -> None:
        """
        Notes that an index is never negative; accesses at constant offsets from it get a pointer.

        Otherwise GCC has to find out which sums have the same base, for a fifth of its time. A
        negative index would give a pointer before the memory, which is undefined (C11 6.5.6).
        """
        self.non_negative.add(index)
        for memory in dict.fromkeys(memories_at_offsets(index)):
            name = self._names.get(memory)
            if name is not None:
                pointer = self._pointers[index, memory] = f"{name}_{self.name(index)}"
                type_ = types.pointer(memory.type)
                self.line(f"{type_}const {pointer} = &{name}[{self.name(index)}];")

    def element(self, memory: SSAValue, indices: Sequence[SSAValue]) -> str:
        """The C expression of an element of memory."""
        if len(indices) == 1:
            base, number = constant_offset(indices[0]) or (indices[0], 0)
            pointer = self._pointers.get((base, memory))
            if pointer is not None:
                return f"{pointer}[{number}]"
        return f"{self.name(memory)}[{row_major_offset(self, memory, indices)}]"

    def _is_folded(self, index: SSAValue) -> bool:
        """Whether all uses of a sum are accesses through pointers, so that it needs no variable."""
        parts = constant_offset(index)
        return parts is not None and all(
            (parts[0], memory_at(use)) in self._pointers for use in index.uses
        )

    def reserve(self, size: int, type_: Attribute) -> None:
        """Adds an array to the size of the stack frame."""
        self._stack += size
        if self._stack > STACK_BYTES:
            raise UnsupportedError(
                f"local memory of {type_} does not fit a thread's stack",
                hint=f"a kernel may hold {STACK_BYTES} bytes; larger memory is an operand",
            )


def _constant(body: Body, op: Operation) -> None:
    (result,), value = op.results, op.properties["value"]
    body.bind(result, literals.literal(value, result.type))
    if natural(result) is not None:
        body.non_negative.add(result)


def _truncate(body: Body, op: Operation) -> None:
    """
    Prints a rounding. A vector that is rounded to bf16, and only widened again, stays f32.

    It takes 5 instructions instead of 6 and a branch (AVX-512), or 7 instead of 16 (AVX2); 4 or 5
    for arithmetic on numbers of bf16.
    """
    assert isinstance(op, arith.TruncFOp)
    wide, narrow = op.input.type, op.result.type
    count, kinds = types.lanes(wide), (types.element(wide).name, types.element(narrow).name)
    if count is None or kinds != ("f32", "bf16"):
        body.define(op.result, expression(op, body.operands(op)))
        return
    (operand,), is_known = body.operands(op), is_exact(op.input, bf16)
    if all(_widens(use.operation, wide) for use in op.result.uses):
        body.wide.add(op.result)
        if is_known:
            body.bind(op.result, operand)
        else:
            text = nearest_bf16(operand, count, carries=not has_nan_of_bf16(op.input))
            name = body.fresh(op.result, "v")
            body.line(f"const {types.value(wide)} {name} = {text};")
    elif is_known:
        body.define(op.result, exact_bf16(operand, count))
    else:
        body.define(op.result, expression(op, [operand]))


def _widens(op: Operation, wide: Attribute) -> bool:
    return isinstance(op, arith.ExtFOp) and op.result.type == wide


def _extend(body: Body, op: Operation) -> None:
    assert isinstance(op, arith.ExtFOp)
    if op.input in body.wide:
        body.bind(op.result, body.name(op.input))
    else:
        body.define(op.result, expression(op, body.operands(op)))


def _for(body: Body, op: Operation) -> None:
    """Prints a loop; carried values are variables before it, assigned at the end of its body."""
    assert isinstance(op, scf.ForOp)
    index, *carried = op.body.block.args
    # The copies are free: gcc 12 keeps 28 accumulators in registers, at 99 % of FMA peak.
    for argument, initial, result in zip(carried, op.iter_args, op.results, strict=True):
        name = body.fresh(argument, "s")
        body.bind(result, name)
        body.line(f"{body.type_of(argument)} {name} = {body.name(initial)};")
    n = body.fresh(index, "n")
    low, high, step = body.operands(op)[:3]
    type_ = body.type_of(index)
    body.open(f"for ({type_} {n} = {low}; {n} < {high}; {n} += {step}) {{")
    if op.lb in body.non_negative:
        body.mark_non_negative(index)
    body.block(op.body.block)
    last = op.body.block.last_op
    if isinstance(last, scf.YieldOp):
        _assign(body, carried, last.operands)
    body.close()


def _assign(body: Body, targets: Sequence[SSAValue], sources: Sequence[SSAValue]) -> None:
    """Assigns all at once: a target that is also a source is read before it is written."""
    texts = [body.name(source) for source in sources]
    written = set(targets)
    for number, (target, source) in enumerate(zip(targets, sources, strict=True)):
        if source in written and source is not target:
            saved = f"{body.name(target)}_next"
            body.line(f"const {body.type_of(target)} {saved} = {texts[number]};")
            texts[number] = saved
    for target, text in zip(targets, texts, strict=True):
        if body.name(target) != text:
            body.line(f"{body.name(target)} = {text};")


def _if(body: Body, op: Operation) -> None:
    assert isinstance(op, scf.IfOp)
    for result in op.results:
        body.line(f"{body.type_of(result)} {body.fresh(result, 'r')};")
    body.open(f"if ({body.name(op.cond)}) {{")
    _branch(body, op, op.true_region.block)
    if op.false_region.blocks:
        body.close("} else {")
        body._depth += 1
        _branch(body, op, op.false_region.block)
    body.close()


def _branch(body: Body, op: scf.IfOp, block: Block) -> None:
    body.block(block)
    if op.results and block.last_op is not None:
        for result, source in zip(op.results, block.last_op.operands, strict=True):
            body.line(f"{body.name(result)} = {body.name(source)};")


def _nothing(body: Body, op: Operation) -> None:
    """Prints nothing for a terminator: the enclosing operation does."""
    if isinstance(op, func.ReturnOp) and op.operands:
        raise UnsupportedError("a kernel returns results in memory, not as values")


def _alloca(body: Body, op: Operation) -> None:
    assert isinstance(op, memref.AllocaOp)
    type_ = op.memref.type
    assert isinstance(type_, MemRefType)
    found, count = types.element(type_), prod(types.dense(type_))
    body.reserve(count * found.bits // 8, type_)
    name = body.fresh(op.memref, "m")
    # C has no arrays of length 0 (C11 6.7.6.2).
    body.line(f"{found.memory} {name}[{max(count, 1)}] __attribute__((aligned({ALIGNMENT})));")


def row_major_offset(body: Body, base: SSAValue, indices: Sequence[SSAValue]) -> str:
    """The offset of an element in row-major memory, as a sum without zero terms."""
    assert isinstance(base.type, MemRefType)
    stride, terms = 1, list[str]()
    for index, size in zip(reversed(indices), reversed(types.dense(base.type)), strict=True):
        name = body.name(index)
        if name != "0":
            terms.append(name if stride == 1 else f"{name} * {stride}")
        stride *= size
    return " + ".join(reversed(terms)) or "0"


def _load(body: Body, op: Operation) -> None:
    (base, *indices), (result,) = op.operands, op.results
    text = body.element(base, indices)
    kind = types.element(result.type).kind
    body.define(result, f"{text} != 0" if kind == "bool" else text)


def _store(body: Body, op: Operation) -> None:
    value, base, *indices = op.operands
    body.line(f"{body.element(base, indices)} = {body.name(value)};")


def _copy(body: Body, op: Operation) -> None:
    assert isinstance(op, memref.CopyOp) and isinstance(op.source.type, MemRefType)
    target, source = body.name(op.destination), body.name(op.source)
    body.line(f"__builtin_memcpy({target}, {source}, {_bytes(op.source)});")


def _vector_memory(
    body: Body, type_: Attribute, base: SSAValue, indices: Sequence[SSAValue]
) -> str:
    """The C expression of a vector in memory."""
    pointer = types.vector_pointer(type_)
    return f"*({pointer})&{body.element(base, indices)}"


def _vector_load(body: Body, op: Operation) -> None:
    (base, *indices), (result,) = op.operands, op.results
    text = _vector_memory(body, result.type, base, indices)
    if types.element(result.type).kind == "bool":
        count = types.lanes(result.type)
        lane = types.element(result.type).lane(count)
        text = cast(f"((i8x{count})({text} != 0))", "i8", lane, count)
    # GCC would load it again for each product; a core with two FMAs a cycle has two loads a cycle.
    # Together with FMAs, which GCC avoids on Zen, encoder 12 x 768 takes 0.76 of its time (Zen 3).
    if sum(isinstance(use.operation, math.FmaOp | vector.FMAOp | DotOp) for use in result.uses) > 1:
        text = f"POPGRAPH_KEPT({types.value(result.type)}, {text})"
    body.define(result, text)


def _vector_store(body: Body, op: Operation) -> None:
    value, base, *indices = op.operands
    stored = body.name(value)
    if types.element(value.type).kind == "bool":
        count = types.lanes(value.type)
        lane = types.element(value.type).lane(count)
        stored = cast(f"({stored} & 1)", lane, "u8", count)
    body.line(f"{_vector_memory(body, value.type, base, indices)} = {stored};")


def _prefetch(body: Body, op: Operation) -> None:
    """Prefetches through an integer: pointers beyond an array are undefined (C11 6.5.6)."""
    assert isinstance(op, PrefetchOp) and isinstance(op.memory.type, MemRefType)
    base, index = body.name(op.memory), body.name(op.index)
    # Locality 2 is L2. ResNet-50 with cold weights: 30.2 ms, 31.0 ms without prefetches (Zen 5).
    address = f"(uintptr_t){base} + (uintptr_t)({index}) * sizeof *{base}"
    body.line(f"__builtin_prefetch((const void *)({address}), {int(bool(op.written))}, 2);")


def _apart(body: Body, op: Operation) -> None:
    assert isinstance(op, ApartOp)
    lhs, rhs = body.name(op.lhs), body.name(op.rhs)
    body.define(op.result, f"(const void *){lhs} != (const void *){rhs}")


def _bytes(memory: SSAValue) -> int:
    assert isinstance(memory.type, MemRefType)
    return types.element(memory.type).bits // 8 * prod(types.dense(memory.type))


def _send(body: Body, op: Operation) -> None:
    assert isinstance(op, SendOp) and isinstance(op.source.type, MemRefType)
    source, target = body.name(op.source), body.name(op.target)
    when = "true" if op.when is None else body.name(op.when)
    code = exchange_code(op.exchange, element_types.from_ir(op.source.type.element_type))
    sizes = f"{_bytes(op.source)}, {_bytes(op.target)}"
    body.line(f"popgraph_send({source}, {target}, {sizes}, {when}, {code});")


def _receive(body: Body, op: Operation) -> None:
    assert isinstance(op, ReceiveOp)
    source, target = body.name(op.source), body.name(op.target)
    body.line(f"popgraph_receive({source}, {target}, {_bytes(op.target)});")


_STATEMENTS: Mapping[type[Operation], Callable[[Body, Operation], None]] = {
    arith.ConstantOp: _constant,
    arith.TruncFOp: _truncate,
    arith.ExtFOp: _extend,
    scf.ForOp: _for,
    scf.IfOp: _if,
    scf.YieldOp: _nothing,
    func.ReturnOp: _nothing,
    memref.AllocaOp: _alloca,
    memref.LoadOp: _load,
    memref.StoreOp: _store,
    memref.CopyOp: _copy,
    vector.LoadOp: _vector_load,
    vector.StoreOp: _vector_store,
    ApartOp: _apart,
    PrefetchOp: _prefetch,
    ReceiveOp: _receive,
    SendOp: _send,
}


# Addressing: indices with constant offsets from one base share a pointer. The IR has no pointers,
# only memory and indices: through a pointer, memory would have no size to check bounds by. They
# only help GCC's analysis of addresses, see `Body.mark_non_negative`.

_MEMORY: Mapping[type[Operation], int] = {
    memref.LoadOp: 0,
    memref.StoreOp: 1,
    vector.LoadOp: 0,
    vector.StoreOp: 1,
}
"""The position of the memory among the operands of each load and store."""

_SUMS = frozenset(
    (arith.AddiOp, arith.MuliOp, arith.DivSIOp, arith.RemSIOp, arith.MinSIOp, arith.MaxSIOp)
)
# Types are compared, as this runs for every operation of every kernel: `isinstance` calls the
# metaclass of another class, which takes four times as long.


def is_never_negative(op: Operation, known: set[SSAValue]) -> bool:
    """Whether the result is an index >= 0, given the values `known` to be >= 0."""
    return type(op) in _SUMS and known.issuperset(op.operands)


def constant_offset(index: SSAValue) -> tuple[SSAValue, int] | None:
    """The terms of an index `base + constant`, constant >= 0; None for other indices."""
    add = index.owner
    if type(add) is not arith.AddiOp or type(index.type) is not IndexType or handed(add):
        return None
    base, constant = add.operands
    number = natural(constant)
    return None if number is None else (base, number)


def memory_at(use: Use) -> SSAValue | None:
    """The memory that is accessed at an index, if the use is the only index there."""
    op = use.operation
    place = _MEMORY.get(type(op))
    if place is None or use.index != place + 1 or len(op.operands) != place + 2:
        return None
    return op.operands[place]


def memories_at_offsets(base: SSAValue) -> Iterator[SSAValue]:
    """The memories that are unconditionally accessed at constant offsets from `base`."""
    for use in base.uses:
        add = use.operation
        if type(add) is arith.AddiOp and use.index == 0 and constant_offset(add.results[0]):
            for access in add.results[0].uses:
                memory = memory_at(access)
                # An address that a branch avoids may be beyond the memory, which is undefined.
                if memory is not None and not _is_conditional(access.operation, base):
                    yield memory


def _is_conditional(op: Operation, value: SSAValue) -> bool:
    """Whether an operation is in a branch inside of the block where `value` is defined."""
    home = value.owner if isinstance(value.owner, Block) else value.owner.parent
    while op.parent is not home:
        holder = op.parent_op()
        if holder is None or isinstance(holder, scf.IfOp):
            return True
        op = holder
    return False
