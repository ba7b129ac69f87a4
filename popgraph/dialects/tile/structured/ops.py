"""
The structured level: implicit loops, given by index maps over a domain and a body.

Constructors call `Operation.__init__`: they know the counts of operands, results and regions,
which IRDL's constructor would look up in the definition. Measured: 4 us instead of 10.
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
    """The values that a body yields."""
    end = body.last_op
    assert isinstance(end, YieldOp), "a body ends with tile.yield"
    return tuple(end.values)


def is_identity(body: Block) -> bool:
    """Whether a body only yields its arguments."""
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
    """The dimensions whose indices a body uses."""
    return frozenset(op.dim.value.data for op in block.ops if isinstance(op, IndexOp))


@irdl_op_definition
class ElementOp(IRDLOperation):
    """In a body: the element of a whole tensor (a table) at computed indices within its shape."""

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
    An operation over a `domain`: the sizes of its loops, parallel dimensions first.

    Every input has a map from the domain to its logical index. The reference backend runs these
    operations directly; `structured-to-loops` builds their loops.
    """

    @property
    def sizes(self) -> Shape:
        """The extents of the loops."""
        sizes: Shape = self.domain.data  # type: ignore[attr-defined]
        return sizes

    @property
    def parallel_rank(self) -> int:
        """The number of leading loops that are parallel; the others reduce."""
        raise AssertionError

    @property
    def input_maps(self) -> tuple[AffineMap, ...]:
        return tuple(attribute.data for attribute in self.maps)  # type: ignore[attr-defined]

    @property
    def epilogue_input_maps(self) -> tuple[AffineMap, ...]:
        """The maps of epilogue inputs, over the parallel loops."""
        return tuple(attribute.data for attribute in self.epilogue_maps)  # type: ignore[attr-defined]

    @property
    def mapped_inputs(self) -> tuple[SSAValue, ...]:
        """`inputs`, without the cost of xDSL's lookup."""
        return tuple(self.operands[: len(self.maps)])  # type: ignore[attr-defined]

    def check_maps(
        self, operands: Sequence[SSAValue], maps: Sequence[AffineMap], sizes: Shape
    ) -> None:
        """Checks that each operand has a map of the domain that stays within it and its halo."""
        if len(operands) != len(maps):
            raise VerifyException(f"{len(operands)} inputs, but {len(maps)} maps")
        for operand, map_ in zip(operands, maps, strict=True):
            assert isinstance(operand.type, TensorType)
            if map_.num_dims != len(sizes) or len(map_.results) != operand.type.get_num_dims():
                raise VerifyException(
                    f"map {map_} does not fit {operand.type} and {len(sizes)} loops"
                )
            if leaves(operand.type, map_, sizes):
                raise VerifyException(f"map {map_} exceeds {operand.type} over {list(sizes)}")

    def check_results(self) -> None:
        """Checks that results have the shape of the parallel dimensions."""
        shape = self.sizes[: self.parallel_rank]
        for result in self.results:
            assert isinstance(result.type, TensorType)
            if result.type.get_shape() != shape:
                raise VerifyException(f"the result must have shape {shape}")


def check_block(name: str, block: Block, expected: Sequence[Attribute]) -> None:
    if [argument.type for argument in block.args] != list(expected):
        listed = ", ".join(str(type_) for type_ in expected)
        raise VerifyException(f"the {name} must take ({listed})")


@irdl_op_definition
class MapOp(Structured):
    """
    Computes each result element from elements of the inputs: `y[d] = body(x0[map0(d)], ...)`.

    The body takes one scalar per input, then the `tables`, which are whole tensors for
    `tile.element`; it yields one scalar per result. Transposes, slices and broadcasts are maps with
    an identity body, so they fuse like arithmetic.
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

    @property
    def mapped_tables(self) -> tuple[SSAValue, ...]:
        """`tables`, without the cost of xDSL's lookup."""
        return tuple(self.operands[len(self.maps) :])

    def verify_(self) -> None:
        self.check_maps(self.inputs, self.input_maps, self.sizes)
        self.check_results()
        expected = [*map(element, self.inputs), *(table.type for table in self.tables)]
        check_block("body", self.body.block, expected)


@irdl_op_definition
class ScatterOp(Structured):
    """
    Accumulates at computed indices: for each domain index in order, `y[indices] += value`.

    `body(inputs...)` yields the indices, then the value. The result starts at zero, or as
    `initial`, a tensor of its type. `combine` replaces the sum:
    `y[indices] = combine(y[indices], value)`.

    The first `parallel` indices that the body yields are the domain's own leading indices, so
    these loops may run in parallel.
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
            raise VerifyException(
                f"the initial value must have the type of the result, {self.output.type}"
            )
        if self.combine is not None:
            check_block("combination", self.combine.block, [element(self.output)] * 2)


@irdl_op_definition
class TopKOp(IRDLOperation):
    """
    The positions of the elements with the largest keys in each row, in order.

    `body(element)` is the key, an unsigned integer of 32 or 64 bits. The largest key comes first;
    among equal keys, the lower position.
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
        """The number of rows, and the length of each."""
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
        """The number of positions per row."""
        assert isinstance(self.output.type, TensorType)
        return self.output.type.get_shape()[-1]

    def verify_(self) -> None:
        assert isinstance(self.output.type, TensorType)
        if len(self.sizes) != 2 or self.output.type.get_shape()[:-1] != self.sizes[:1]:
            raise VerifyException("rows and positions must be matrices of equal height")
        if self.output.type.element_type != i64 or not 0 <= self.count <= self.sizes[1]:
            raise VerifyException(
                "the result must hold i64 positions, at most as many as a row has"
            )
        check_block("body", self.body.block, [element(self.rows)])
        end = self.body.block.last_op
        if end is None or [value.type for value in end.operands] not in ([i32], [i64]):
            raise VerifyException("the body must yield a key, i32 or i64")
