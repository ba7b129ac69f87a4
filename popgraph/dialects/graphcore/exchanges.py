"""Exchanges: what the processes of a distributed program tell each other while a step runs."""

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
    One row of elements, made of those that the ranks of a group have.

    `kind` is all_reduce, all_gather or reduce_scatter, `combine` Add, Mul, Min or Max. Groups have
    `size` ranks that are `stride` apart. Where `when` is given and false, nobody tells anything:
    the result is `x` of an all-reduce, else zeros. All ranks run the same exchanges in the same
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
        """What ranks tell each other, as plain data."""
        numbers = integer(self.stride), integer(self.size)
        try:
            return Exchange(self.kind.data, *numbers, self.combine.data)
        except ValueError as error:
            raise self.fail(str(error)) from error

    @property
    def tells_variable(self) -> bool:
        """Whether ranks tell each other their shares of a variable."""
        return self.kind.data == ALL_GATHER and isinstance(self.x.owner, VariableOp)

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(NUMBERS, self.x)
        if len(shape_of(self.x)) != 1:
            raise self.fail("takes one row of elements", "reshape the operand first")
        if self.when is not None and tensor_of(self.when) != tensor_type(i1, ()):
            raise self.fail("takes one bool that says whether anything is told")
        (count,), exchange = shape_of(self.x), self.exchange
        if exchange.kind not in ("all_reduce", "all_gather") and count % exchange.size:
            raise self.fail(f"cannot share {count} elements among {exchange.size} ranks")
        return (tensor_type(element, (exchange.result_size(count),)),)

    def evaluate(self, x: Array, when: Array | None = None) -> tuple[Array, ...]:
        return (exchange_if(self.exchange, x, when),)
