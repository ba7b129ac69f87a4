"""Exchanges between ranks in two halves, so that computation overlaps communication."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType, i1
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.tile.messages import Exchanging, exchange_properties
from popgraph.dialects.tile.structured.ops import element
from popgraph.support.ranks.communicator import ALL_REDUCE, Exchange


@irdl_op_definition
class StartExchangeOp(Exchanging):
    """
    Starts an exchange of a row of elements with other ranks; see `graphcore.exchange`.

    Only `tile.finish_exchange` may read the result. Neither operation is pure: both keep their
    order, so that all ranks run the exchanges in the same order.
    """

    name = "tile.start_exchange"
    x = operand_def(TensorType)
    when = opt_operand_def(TensorType)
    output = result_def(TensorType)
    assembly_format = (
        "$x `:` type($x) (`when` $when^ `:` type($when))? $kind $combine "
        "`stride` $stride `size` $size attr-dict `->` type($output)"
    )

    def __init__(self, x: SSAValue, when: SSAValue | None, exchange: Exchange) -> None:
        assert isinstance(x.type, TensorType)
        (count,) = x.type.get_shape()
        Operation.__init__(
            self,
            operands=[x] if when is None else [x, when],
            properties=exchange_properties(exchange),
            result_types=[tensor_type(element(x), (exchange.result_size(count),))],
        )

    @property
    def is_in_place(self) -> bool:
        """Whether the exchange may overwrite its operand with the result."""
        return self.kind.data == ALL_REDUCE

    def verify_(self) -> None:
        super().verify_()
        assert isinstance(self.x.type, TensorType)
        shape = self.x.type.get_shape()
        if len(shape) != 1:
            raise VerifyException("an exchange takes one row of elements")
        if self.output.type != tensor_type(element(self.x), (self.exchange.result_size(*shape),)):
            raise VerifyException("the result type does not fit the exchange")
        if self.when is not None and element(self.when) != i1:
            raise VerifyException("`when` must be a bool")


@irdl_op_definition
class FinishExchangeOp(IRDLOperation):
    """
    Waits for the result of an exchange.

    `source` is the operand of the exchange, if its memory must stay intact until then.
    """

    name = "tile.finish_exchange"
    started = operand_def(TensorType)
    source = opt_operand_def(TensorType)
    output = result_def(TensorType)
    assembly_format = (
        "$started `:` type($started) (`of` $source^ `:` type($source))? attr-dict "
        "`->` type($output)"
    )

    def __init__(self, started: SSAValue, source: SSAValue | None = None) -> None:
        Operation.__init__(
            self,
            operands=[started] if source is None else [started, source],
            result_types=[started.type],
        )

    def verify_(self) -> None:
        if self.started.type != self.output.type:
            raise VerifyException("the result must have the type of the started exchange")
