"""The writer of a kernel's body: opens and closes loops, hoists and shares values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType

from xdsl.dialects import arith, memref, scf, vector
from xdsl.dialects.builtin import (
    ArrayAttr,
    ComplexType,
    DenseArrayBase,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    Signedness,
    VectorType,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from popgraph.dialects import tile
from popgraph.dialects.tile.lanes import vector_of
from popgraph.dialects.tile.loops.recipes import Recipes
from popgraph.dialects.unchecked import create_unchecked, fill
from popgraph.passes.structured.to_loops.emit.create import (
    allocation,
    create_same_type,
    numeric_attribute,
)
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.support.memo import by_identity
from popgraph.support.tuning import Target

Bound = int | SSAValue
INDEX = IndexType()


@dataclass
class Level:
    """An open block: of the kernel, of a loop or of a branch."""

    block: Block
    operations: list[Operation] = field(default_factory=list)
    """In order. A loop is added when it closes, after the operations hoisted out of it."""
    known: dict[object, SSAValue] = field(default_factory=dict)
    """The values computed in this block, by operation and operands."""

    def close(self) -> None:
        """Moves the operations into the block."""
        fill(self.block, self.operations)


@dataclass
class Loop:
    """An open `scf.for`: its counter, carried values and results."""

    counter: SSAValue
    carried: list[SSAValue]
    results: list[SSAValue]
    """Valid after the loop is closed."""
    level: Level

    def next(self, values: Sequence[SSAValue]) -> None:
        """Yields the carried values of the next iteration."""
        self.level.operations.append(create_unchecked(scf.YieldOp, *values))


class Writer:
    """
    Writes the body of a kernel for a target.

    A pure value is computed once per block, in the outermost block that has its operands: constants
    at the top, each term of an index in the loop of its counter, loads of memory that the kernel
    only reads after their index. `close` fills the block.

    `sizes` are the sizes of the call at which loops end, by number.
    """

    def __init__(self, block: Block, target: Target) -> None:
        self.target = target
        self.sizes: Mapping[int, SSAValue] = {}
        self.levels = [Level(block)]
        self.depths: dict[SSAValue, int] = dict.fromkeys(block.args, 0)
        self.literal = by_identity(self._literal)
        """A scalar constant, at the top of the kernel; a complex one is an array of two numbers."""

    def close(self) -> None:
        """Moves the operations into the block of the kernel."""
        (outermost,) = self.levels
        outermost.close()

    @property
    def depth(self) -> int:
        """The number of loops and branches that are open."""
        return len(self.levels) - 1

    def mark(self, name: str, recipe: Attribute) -> None:
        """Attaches a recipe to the innermost loop."""
        loop = self.levels[-1].block.parent_op()
        assert isinstance(loop, scf.ForOp)
        loop.attributes[name] = recipe

    # Operations

    def add(self, op: Operation, depth: int | None = None) -> SSAValue:
        """Inserts an operation of one result, by default at the innermost level."""
        depth = len(self.levels) - 1 if depth is None else depth
        self.levels[depth].operations.append(op)
        (result,) = op.results
        self.depths[result] = depth
        return result

    def do(self, op: Operation) -> None:
        """Inserts an operation without results at the innermost level."""
        self.levels[-1].operations.append(op)

    def once(self, op: Operation) -> SSAValue:
        """
        Inserts a pure operation at the outermost level that has its operands.

        An equal operation of that level is reused.
        """
        operands = tuple(op.operands)
        depth = max(map(self.depths.__getitem__, operands), default=0)
        properties = tuple(sorted(op.properties.items(), key=lambda item: item[0]))
        key = (op.name, operands, properties, op.results[0].type)
        known = self.levels[depth].known
        value = known.get(key)
        if value is None:
            value = known[key] = self.add(op, depth)
        else:
            op.erase()
        return value

    def shared(
        self, kind: object, operands: Sequence[SSAValue], make: Callable[[], Operation]
    ) -> SSAValue:
        """Like `once`, for an operation that `kind` and its operands identify: created if new."""
        # `once` creates an operation to find its equal; this key costs none.
        depth = max(map(self.depths.__getitem__, operands))
        known = self.levels[depth].known
        key = (kind, *operands)
        value = known.get(key)
        if value is None:
            value = known[key] = self.add(make(), depth)
        return value

    # Constants

    def constant(self, value: int) -> SSAValue:
        """An index constant, at the top of the kernel."""
        known = self.levels[0].known
        found = known.get(value)
        if found is None:
            found = known[value] = self.literal(numeric_attribute(value, INDEX))
        return found

    def _literal(self, value: Attribute) -> SSAValue:
        if isinstance(value, ArrayAttr):
            # Few programs have complex numbers; the others start 7 ms earlier.
            from xdsl.dialects import complex

            type_ = ComplexType(value.data[0].type)
            return self.once(create_unchecked(complex.ConstantOp, types=(type_,), value=value))
        assert isinstance(value, IntegerAttr | FloatAttr)
        type_ = value.type
        # `arith.constant` has signless integers only: an ui8 constant is a cast of an i8.
        if isinstance(type_, IntegerType) and type_.signedness.data != Signedness.SIGNLESS:
            width = type_.width.data
            bits = IntegerAttr(int(value.value.data), IntegerType(width), truncate_bits=True)
            return self.once(arith.BitcastOp(self.literal(bits), type_))
        known = self.levels[0].known
        found = known.get(value)
        if found is None:
            found = self.add(create_unchecked(arith.ConstantOp, types=(type_,), value=value), 0)
            known[value] = found
        return found

    def number(self, value: int, type_: Attribute) -> SSAValue:
        """A constant scalar of any element type."""
        return self.literal(numeric_attribute(value, type_))

    # Indices

    def value(self, index: Index) -> SSAValue:
        """Computes an index; the term of each counter is added in the block of its loop."""
        if not index.terms:
            return self.constant(index.constant)
        # The constant comes last: neighbors like x[i + 1] and x[i + 2] share the sum of terms.
        total = self._sum_of_terms(index.terms)
        return self.sum(total, self.constant(index.constant)) if index.constant else total

    def _sum_of_terms(self, terms: Mapping[SSAValue, int]) -> SSAValue:
        """The sum of multiples of counters, outer loops first; cached, as most are reused."""
        counters = sorted(terms, key=self.depths.__getitem__)
        known, key = self.levels[self.depths[counters[-1]]].known, tuple(terms.items())
        found = known.get(key)
        if found is None:
            parts = (self.times(counter, terms[counter]) for counter in counters)
            found = known[key] = reduce(self.sum, parts)
        return found

    def times(self, value: SSAValue, factor: int) -> SSAValue:
        """A multiple of an index."""
        return value if factor == 1 else self._multiple(value, factor)

    def _multiple(self, counter: SSAValue, factor: int) -> SSAValue:
        return self.shared(
            (arith.MuliOp, factor),
            (counter,),
            lambda: create_same_type(arith.MuliOp, counter, self.constant(factor)),
        )

    def sum(self, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        return self.shared(
            arith.AddiOp, (lhs, rhs), lambda: create_same_type(arith.AddiOp, lhs, rhs)
        )

    def bound(self, bound: Bound) -> SSAValue:
        return self.constant(bound) if isinstance(bound, int) else bound

    def size(self, memory: SSAValue) -> SSAValue:
        """A size of the call as an index, loaded from its memory of one i64."""
        return self.once(arith.IndexCastOp(self.load_input(memory, Index()), INDEX))

    # Memory

    def load(self, memory: SSAValue, index: Index) -> SSAValue:
        return self.add(self._loaded(memory, self.value(index)))

    def _loaded(self, memory: SSAValue, position: SSAValue) -> Operation:
        assert isinstance(memory.type, MemRefType)
        return create_unchecked(memref.LoadOp, memory, position, types=(memory.type.element_type,))

    def load_input(self, memory: SSAValue, index: Index) -> SSAValue:
        """Loads an element that the kernel does not write; shared and hoisted like pure values."""
        position = self.value(index)
        return self.shared(
            memref.LoadOp, (memory, position), lambda: self._loaded(memory, position)
        )

    def vector_load_input(self, memory: SSAValue, index: Index, lanes: int) -> SSAValue:
        """Loads a vector like `load_input`."""
        assert isinstance(memory.type, MemRefType)
        position, type_ = self.value(index), vector_of(memory.type.element_type, lanes)
        return self.shared(
            (vector.LoadOp, lanes),
            (memory, position),
            lambda: create_unchecked(vector.LoadOp, memory, position, types=(type_,)),
        )

    def apart(self, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        """Tests whether two memories differ, which is unknown until `plan-memory`."""
        op = tile.ApartOp(lhs, rhs)
        self.do(op)
        return op.result

    def store(self, value: SSAValue, memory: SSAValue, index: Index) -> None:
        self.do(create_unchecked(memref.StoreOp, value, memory, self.value(index)))

    def vector_load(self, memory: SSAValue, index: Index, lanes: int) -> SSAValue:
        assert isinstance(memory.type, MemRefType)
        type_ = vector_of(memory.type.element_type, lanes)
        return self.add(create_unchecked(vector.LoadOp, memory, self.value(index), types=(type_,)))

    def vector_store(self, value: SSAValue, memory: SSAValue, index: Index) -> None:
        self.do(create_unchecked(vector.StoreOp, value, memory, self.value(index)))

    def put(self, value: SSAValue, memory: SSAValue, index: Index) -> None:
        """Stores a scalar or a vector."""
        if isinstance(value.type, VectorType):
            self.vector_store(value, memory, index)
        else:
            self.store(value, memory, index)

    def get(self, memory: SSAValue, index: Index, lanes: int) -> SSAValue:
        """Loads a vector, or a scalar for no lanes."""
        return self.vector_load(memory, index, lanes) if lanes else self.load(memory, index)

    def broadcast(self, scalar: SSAValue, lanes: int) -> SSAValue:
        """A vector with this scalar in all lanes."""
        return self.shared(
            (vector.BroadcastOp, lanes),
            (scalar,),
            lambda: create_unchecked(
                vector.BroadcastOp, scalar, types=(vector_of(scalar.type, lanes),)
            ),
        )

    def shuffle(self, first: SSAValue, second: SSAValue, lanes: Sequence[int]) -> SSAValue:
        """Selects lanes of two vectors; numbers of the second continue after the first's."""
        assert isinstance(first.type, VectorType)
        type_ = vector_of(first.type.element_type, len(lanes))
        return self.shared(
            (vector.ShuffleOp, *lanes),
            (first, second),
            lambda: create_unchecked(
                vector.ShuffleOp,
                *(first, second),
                types=(type_,),
                mask=DenseArrayBase.from_list(i64, lanes),
            ),
        )

    def extract(self, vector_: SSAValue, lane: int) -> SSAValue:
        assert isinstance(vector_.type, VectorType)
        types, place = (vector_.type.element_type,), DenseArrayBase.from_list(i64, [lane])
        return self.add(
            create_unchecked(vector.ExtractOp, vector_, types=types, static_position=place)
        )

    def alloca(self, element: Attribute, size: int) -> SSAValue:
        """Local memory, at the top of the kernel."""
        return self.add(allocation(element, size), 0)

    def alloca_here(self, element: Attribute, size: int) -> SSAValue:
        """Local memory at the innermost level, new in each iteration."""
        return self.add(allocation(element, size))

    def local(self, element: Attribute, size: int) -> SSAValue:
        """Local memory that is written at this level; its loads are not hoisted out of it."""
        memory = self.alloca(element, size)
        self.written_here(memory)
        return memory

    def written_here(self, memory: SSAValue) -> None:
        """Keeps later loads of local memory at this level, which changes it."""
        # Loads are hoisted as far as their operands: the depth of the memory stops them here.
        self.depths[memory] = len(self.levels) - 1

    # Control

    @contextmanager
    def loop(
        self,
        lower: Bound,
        upper: Bound,
        step: int = 1,
        carried: Sequence[SSAValue] = (),
        recipes: Recipes = MappingProxyType({}),
    ) -> Iterator[Loop]:
        """
        Opens a loop; with carried values, call `Loop.next` before it closes.

        Passes at the loops level transform the loop by its `recipes`.
        """
        types = [value.type for value in carried]
        block = Block(arg_types=[INDEX, *types])
        first, last = self.bound(lower), self.bound(upper)
        bounds = (first, last, self.constant(step))
        op = create_unchecked(scf.ForOp, *bounds, *carried, types=types, regions=(Region(block),))
        op.attributes.update(recipes)
        with self._inside(op, block) as level:
            yield Loop(block.args[0], list(block.args[1:]), list(op.results), level)
            if not level.operations or type(level.operations[-1]) is not scf.YieldOp:
                assert not types, "a loop with carried values needs a call of Loop.next"
                level.operations.append(create_unchecked(scf.YieldOp))
        for result in op.results:
            self.depths[result] = len(self.levels) - 1

    @contextmanager
    def when(self, condition: SSAValue) -> Iterator[None]:
        """Opens a branch without results."""
        block = Block()
        op = scf.IfOp(condition, [], [block])
        with self._inside(op, block) as level:
            yield
            level.operations.append(scf.YieldOp())

    @contextmanager
    def _inside(self, op: Operation, block: Block) -> Iterator[Level]:
        level = Level(block)
        self.levels.append(level)
        for argument in block.args:
            self.depths[argument] = len(self.levels) - 1
        yield level
        self.levels.pop()
        level.close()
        self.do(op)
