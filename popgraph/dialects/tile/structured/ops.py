"""
What is computed, as loops that are not written out: index maps over a domain, and a body.

Constructors call that of `Operation`: they know which operands, results and regions there are, and
that of IRDL would look each one up in the definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    IndexType,
    IntegerAttr,
    TensorType,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_region_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import operand_segment_sizes, tensor_type, whole
from popgraph.dialects.tile.affine import leaves
from popgraph.dialects.tile.running import EndsAtSizes
from popgraph.support.shapes import Shape


def maps_attribute(maps: Sequence[AffineMap]) -> ArrayAttr[AffineMapAttr]:
    return ArrayAttr([AffineMapAttr(map_) for map_ in maps])


def element(value: SSAValue) -> Attribute:
    """The element type of a tensor value."""
    assert isinstance(value.type, TensorType)
    element_: Attribute = value.type.element_type
    return element_


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends a body with its scalars."""

    name = "tile.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "$values `:` type($values) attr-dict"

    def __init__(self, *values: SSAValue | Operation) -> None:
        Operation.__init__(self, operands=[SSAValue.get(value) for value in values])


def yielded(body: Block) -> tuple[SSAValue, ...]:
    """The values that a body ends with."""
    end = body.last_op
    assert isinstance(end, YieldOp), "a body ends with tile.yield"
    return tuple(end.values)


def is_identity(body: Block) -> bool:
    """Whether a body yields its arguments, and does nothing else."""
    end = body.first_op
    return isinstance(end, YieldOp) and list(end.values) == list(body.args)


@irdl_op_definition
class IndexOp(IRDLOperation):
    """In a body: the current index along one dimension of the domain."""

    name = "tile.index"
    dim = prop_def(IntegerAttr)
    result = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "$dim attr-dict"

    def __init__(self, dim: int) -> None:
        Operation.__init__(self, properties={"dim": whole(dim)}, result_types=[IndexType()])


def indexed_dims(block: Block) -> frozenset[int]:
    """The dimensions whose index a body asks for."""
    return frozenset(op.dim.value.data for op in block.ops if isinstance(op, IndexOp))


@irdl_op_definition
class ElementOp(IRDLOperation):
    """In a body: the element of a whole tensor (a table) at computed indices in its range."""

    name = "tile.element"
    table = operand_def(TensorType)
    indices = var_operand_def(IndexType)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "$table `[` $indices `]` `:` type($table) `->` type($result) attr-dict"

    def __init__(self, table: SSAValue, indices: Sequence[SSAValue | Operation]) -> None:
        places = [SSAValue.get(index) for index in indices]
        Operation.__init__(self, operands=[table, *places], result_types=[element(table)])


class Structured(IRDLOperation):
    """
    An operation over a `domain` (the sizes of its loops, parallel dimensions first).

    Every input has a map from the domain to its own (logical) index. The reference backend runs
    these operations as they stand; `structured-to-loops` writes their loops out.
    """

    @property
    def sizes(self) -> Shape:
        """The extent of every loop."""
        sizes: Shape = self.domain.data  # type: ignore[attr-defined]
        return sizes

    @property
    def parallel_rank(self) -> int:
        """How many leading loops are parallel; the others reduce."""
        raise AssertionError

    @property
    def input_maps(self) -> tuple[AffineMap, ...]:
        return tuple(attribute.data for attribute in self.maps)  # type: ignore[attr-defined]

    @property
    def epilogue_input_maps(self) -> tuple[AffineMap, ...]:
        """Of an operation with an epilogue: those of what it reads, over the parallel loops."""
        return tuple(attribute.data for attribute in self.epilogue_maps)  # type: ignore[attr-defined]

    @property
    def mapped_inputs(self) -> tuple[SSAValue, ...]:
        """The operands that have a map: `inputs`, but for what xDSL takes to find these."""
        return tuple(self.operands[: len(self.maps)])  # type: ignore[attr-defined]

    def check_maps(
        self, operands: Sequence[SSAValue], maps: Sequence[AffineMap], sizes: Shape
    ) -> None:
        """Each operand has a map of the domain `sizes` that stays inside of it and its halo."""
        if len(operands) != len(maps):
            raise VerifyException("one map per input")
        for operand, map_ in zip(operands, maps, strict=True):
            assert isinstance(operand.type, TensorType)
            if map_.num_dims != len(sizes) or len(map_.results) != operand.type.get_num_dims():
                raise VerifyException(f"map {map_} does not fit {operand.type}")
            if leaves(operand.type, map_, sizes):
                raise VerifyException(f"map {map_} leaves {operand.type} over {list(sizes)}")

    def check_results(self) -> None:
        """Results have the shape of the parallel dimensions."""
        shape = self.sizes[: self.parallel_rank]
        for result in self.results:
            assert isinstance(result.type, TensorType)
            if result.type.get_shape() != shape:
                raise VerifyException(f"the result's shape must be {shape}")


def check_block(name: str, block: Block, expected: Sequence[Attribute]) -> None:
    if [argument.type for argument in block.args] != list(expected):
        listed = ", ".join(str(type_) for type_ in expected)
        raise VerifyException(f"the {name} takes ({listed})")


@irdl_op_definition
class MapOp(Structured):
    """
    Every element of the results from elements of the inputs: `y[d] = body(x0[map0(d)], ...)`.

    `tables` are whole tensors for `tile.element`. The body takes one scalar per input, then the
    tables; it yields one scalar per result. Transposes, slices and broadcasts are maps with an
    identity body, so they fuse like arithmetic.
    """

    name = "tile.map"
    inputs = var_operand_def(base(TensorType))
    tables = var_operand_def(base(TensorType))
    domain = prop_def(IntsAttr)
    maps = prop_def(ArrayAttr[AffineMapAttr])
    body = region_def("single_block")
    outputs = var_result_def(TensorType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure(), EndsAtSizes())
    assembly_format = (
        "(`ins` `(` $inputs^ `:` type($inputs) `)`)? "
        "(`tables` `(` $tables^ `:` type($tables) `)`)? "
        "`domain` $domain `maps` $maps $body attr-dict `->` type($outputs)"
    )

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        maps: Sequence[AffineMap],
        domain: Sequence[int],
        body: Region,
        elements: Sequence[Attribute],
        tables: Sequence[SSAValue] = (),
    ) -> None:
        Operation.__init__(
            self,
            operands=[*inputs, *tables],
            properties={
                "domain": IntsAttr.of(domain),
                "maps": maps_attribute(maps),
                **operand_segment_sizes(len(inputs), len(tables)),
            },
            regions=[body],
            result_types=[tensor_type(element_, domain) for element_ in elements],
        )

    @property
    def parallel_rank(self) -> int:
        return len(self.domain)

    def verify_(self) -> None:
        self.check_maps(self.inputs, self.input_maps, self.sizes)
        self.check_results()
        expected = [*map(element, self.inputs), *(table.type for table in self.tables)]
        check_block("body", self.body.block, expected)


@irdl_op_definition
class ScatterOp(Structured):
    """
    Sums at computed places: the result starts at zero, then for every domain index in order
    `y[indices] += value`, where `body(inputs...)` yields the indices, then the value.

    With `initial`, a tensor of the result's type, the result starts as it is. With `combine`,
    `y[indices] = combine(y[indices], value)` stands for the sum.

    The first `parallel` indices that the body yields are the domain's own leading indices, so
    those loops may run in parallel.
    """

    name = "tile.scatter"
    inputs = var_operand_def(base(TensorType))
    initial = opt_operand_def(TensorType)
    domain = prop_def(IntsAttr)
    parallel = prop_def(IntegerAttr)
    maps = prop_def(ArrayAttr[AffineMapAttr])
    body = region_def("single_block")
    combine = opt_region_def("single_block")
    output = result_def(TensorType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure(), EndsAtSizes())
    assembly_format = (
        "`ins` `(` $inputs `:` type($inputs) `)` (`initial` $initial^ `:` type($initial))? "
        "`domain` $domain `parallel` $parallel `maps` $maps $body (`combine` $combine^)? "
        "attr-dict `->` type($output)"
    )

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        maps: Sequence[AffineMap],
        domain: Sequence[int],
        parallel: int,
        body: Region,
        result_type: TensorType[Attribute],
        initial: SSAValue | None = None,
        combine: Region | None = None,
    ) -> None:
        started = [] if initial is None else [initial]
        Operation.__init__(
            self,
            operands=[*inputs, *started],
            properties={
                "domain": IntsAttr.of(domain),
                "parallel": whole(parallel),
                "maps": maps_attribute(maps),
                **operand_segment_sizes(len(inputs), len(started)),
            },
            regions=[body] if combine is None else [body, combine],
            result_types=[result_type],
        )

    @property
    def parallel_rank(self) -> int:
        return self.parallel.value.data

    def verify_(self) -> None:
        self.check_maps(self.inputs, self.input_maps, self.sizes)
        check_block("body", self.body.block, [*map(element, self.inputs)])
        if self.initial is not None and self.initial.type != self.output.type:
            raise VerifyException(f"the result starts as {self.output.type}")
        if self.combine is not None:
            check_block("combination", self.combine.block, [element(self.output)] * 2)


@irdl_op_definition
class TopKOp(IRDLOperation):
    """
    Where the first few elements of every row stand, in order: what a sort's result begins with.

    `body(element)` is a key, an unsigned number of 32 or 64 bits. The largest key comes first; of
    equals that at the lower position.
    """

    name = "tile.top_k"
    rows = operand_def(TensorType)
    body = region_def("single_block")
    output = result_def(TensorType)
    traits = traits_def(Pure(), EndsAtSizes())
    assembly_format = "$rows `:` type($rows) $body attr-dict `->` type($output)"

    def __init__(self, rows: SSAValue, count: int, body: Region) -> None:
        assert isinstance(rows.type, TensorType)
        shape = (*rows.type.get_shape()[:-1], count)
        Operation.__init__(
            self, operands=[rows], regions=[body], result_types=[tensor_type(i64, shape)]
        )

    @property
    def sizes(self) -> Shape:
        """The number of rows, and of the elements of each."""
        assert isinstance(self.rows.type, TensorType)
        return self.rows.type.get_shape()

    @property
    def key(self) -> Attribute:
        """The type of keys, i32 or i64."""
        end = self.body.block.last_op
        assert end is not None, "verified"
        return end.operands[0].type

    @property
    def count(self) -> int:
        """How many positions of each row there are."""
        assert isinstance(self.output.type, TensorType)
        return self.output.type.get_shape()[-1]

    def verify_(self) -> None:
        assert isinstance(self.output.type, TensorType)
        if len(self.sizes) != 2 or self.output.type.get_shape()[:-1] != self.sizes[:1]:
            raise VerifyException("rows are a matrix, and so are the positions in each")
        if self.output.type.element_type != i64 or not 0 <= self.count <= self.sizes[1]:
            raise VerifyException("the result has as many i64 positions as a row has, or fewer")
        check_block("body", self.body.block, [element(self.rows)])
        end = self.body.block.last_op
        if end is None or [value.type for value in end.operands] not in ([i32], [i64]):
            raise VerifyException("the body yields a key, i32 or i64")
