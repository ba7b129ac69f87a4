"""Messages between ranks in kernels: an exchange begins, and it has come."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, MemRefType, StringAttr, i1
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.interned import whole
from popgraph.support.ranks.communicator import Exchange


class Telling(IRDLOperation):
    """An operation that says what ranks tell each other."""

    kind = prop_def(StringAttr)
    combine = prop_def(StringAttr)
    stride = prop_def(IntegerAttr)
    size = prop_def(IntegerAttr)

    @property
    def exchange(self) -> Exchange:
        """What they tell, as plain data."""
        numbers = self.stride.value.data, self.size.value.data
        return Exchange(self.kind.data, *numbers, self.combine.data)

    def verify_(self) -> None:
        try:
            _ = self.exchange
        except ValueError as error:
            raise VerifyException(str(error)) from error


def told(exchange: Exchange) -> dict[str, Attribute]:
    """The properties of an operation that tells this."""
    return {
        "kind": StringAttr(exchange.kind),
        "combine": StringAttr(exchange.combine),
        "stride": whole(exchange.stride),
        "size": whole(exchange.size),
    }


@irdl_op_definition
class SendOp(Telling):
    """
    Begins an exchange of the elements in a memory, whose result comes to `target`.

    Where `when` is false nothing is told: `graphcore.exchange` says what stands there then.
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
        Operation.__init__(self, operands=operands, properties=told(exchange))


@irdl_op_definition
class ReceiveOp(IRDLOperation):
    """Waits until the exchange into `source` is finished, and copies what has come."""

    name = "tile.receive"
    source = operand_def(MemRefType)
    target = operand_def(MemRefType)
    assembly_format = "$source `to` $target attr-dict `:` type($source) `,` type($target)"

    def __init__(self, source: SSAValue, target: SSAValue) -> None:
        Operation.__init__(self, operands=[source, target])
