"""Messages between ranks in kernels: the start and the end of an exchange."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, MemRefType, StringAttr, i1
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.interned import whole
from popgraph.support.ranks.communicator import Exchange


class Exchanging(IRDLOperation):
    """An operation with the properties of an exchange between ranks."""

    kind = prop_def(StringAttr)
    combine = prop_def(StringAttr)
    stride = prop_def(IntegerAttr)
    size = prop_def(IntegerAttr)

    @property
    def exchange(self) -> Exchange:
        """The exchange as plain data."""
        numbers = self.stride.value.data, self.size.value.data
        return Exchange(self.kind.data, *numbers, self.combine.data)

    def verify_(self) -> None:
        try:
            _ = self.exchange
        except ValueError as error:
            raise VerifyException(str(error)) from error


def exchange_properties(exchange: Exchange) -> dict[str, Attribute]:
    """The properties of an operation for this exchange."""
    return {
        "kind": StringAttr(exchange.kind),
        "combine": StringAttr(exchange.combine),
        "stride": whole(exchange.stride),
        "size": whole(exchange.size),
    }


@irdl_op_definition
class SendOp(Exchanging):
    """
    Starts an exchange of the elements in a memory; the result arrives in `target`.

    Where `when` is false, nothing is sent; `graphcore.exchange` defines the result for that case.
    """

    name = "tile.send"
    source = operand_def(MemRefType)
    target = operand_def(MemRefType)
    when = opt_operand_def(i1)
    assembly_format = (
        "$source `to` $target (`when` $when^)? $kind $combine `stride` $stride `size` $size "
        "attr-dict `:` type($source) `,` type($target)"
    )

    def __init__(
        self, source: SSAValue, target: SSAValue, when: SSAValue | None, exchange: Exchange
    ) -> None:
        operands = [source, target] if when is None else [source, target, when]
        Operation.__init__(self, operands=operands, properties=exchange_properties(exchange))


@irdl_op_definition
class ReceiveOp(IRDLOperation):
    """Waits until the exchange into `source` is finished, then copies the result."""

    name = "tile.receive"
    source = operand_def(MemRefType)
    target = operand_def(MemRefType)
    assembly_format = "$source `to` $target attr-dict `:` type($source) `,` type($target)"

    def __init__(self, source: SSAValue, target: SSAValue) -> None:
        Operation.__init__(self, operands=[source, target])
