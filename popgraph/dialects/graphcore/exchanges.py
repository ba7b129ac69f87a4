"""Exchanges: communication between the processes of a distributed program within a step."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType, i1
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def, result_def

from popgraph.dialects.graphcore.base import (
    NUMBERS,
    Array,
    GraphcoreOp,
    Operand,
    Tensor,
    integer,
    shape_of,
    tensor_of,
)
from popgraph.dialects.program import VariableOp
from popgraph.dialects.program.interned import tensor_type
from popgraph.support.ranks.communicator import ALL_GATHER, Exchange
from popgraph.support.ranks.world import exchange_if


@irdl_op_definition
class ExchangeOp(GraphcoreOp):
    """
    Combines or concatenates a row of elements over the ranks of a group.

    `kind` is all_reduce, all_gather or reduce_scatter, `combine` Add, Mul, Min or Max. A group has
    `size` ranks at distance `stride`. If `when` is given and false, no rank communicates: an
    all-reduce then returns `x`, any other kind zeros. All ranks run the same exchanges in the same
    order.
    """

    name = "graphcore.exchange"
    x = operand_def(TensorType)
    when = opt_operand_def(TensorType)
    kind = prop_def(StringAttr)
    combine = prop_def(StringAttr)
    stride = prop_def(IntegerAttr)
    size = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(
        self,
        x: Operand,
        when: Operand | None = None,
        *,
        kind: str,
        size: int,
        stride: int = 1,
        combine: str = "Add",
    ) -> None:
        more: dict[str, Any] = {"kind": kind, "combine": combine, "stride": stride, "size": size}
        super().__init__([x, when], more)

    @property
    def exchange(self) -> Exchange:
        """The communication as plain data."""
        numbers = integer(self.stride), integer(self.size)
        try:
            return Exchange(self.kind.data, *numbers, self.combine.data)
        except ValueError as error:
            raise self.fail(str(error)) from error

    @property
    def gathers_variable(self) -> bool:
        """Whether ranks gather their shards of a variable."""
        return self.kind.data == ALL_GATHER and isinstance(self.x.owner, VariableOp)

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(NUMBERS, self.x)
        if len(shape_of(self.x)) != 1:
            raise self.fail("takes one row of elements", "reshape the operand first")
        if self.when is not None and tensor_of(self.when) != tensor_type(i1, ()):
            raise self.fail("takes a bool scalar as `when`")
        (count,), exchange = shape_of(self.x), self.exchange
        if exchange.kind not in ("all_reduce", "all_gather") and count % exchange.size:
            raise self.fail(f"cannot split {count} elements equally over {exchange.size} ranks")
        return (tensor_type(element, (exchange.result_size(count),)),)

    def evaluate(self, x: Array, when: Array | None = None) -> tuple[Array, ...]:
        return (exchange_if(self.exchange, x, when),)
