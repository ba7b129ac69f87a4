"""What PopART warns of as it reads the operators of a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from popgraph.builder.opset.checks import Node
from popgraph.builder.opset.checks.reading import nodes_of
from popgraph.popart.model.model import SessionModel
from popgraph.popart.model.popart_meaning import LENGTHS, STATE, has_own_lengths
from popgraph.popart.sessions.needed_patterns import Differentiated
from popgraph.support.logs import log_of


def _gru(node: Node) -> tuple[str, str] | None:
    if not node.has(LENGTHS):
        return None
    return "op", "Gru optional input `sequence_lens' will be ignored"


def _rnn(node: Node) -> tuple[str, str] | None:
    if not node.has(LENGTHS):
        return None
    return "op", f"optional input `sequence_lens' of {node} will be ignored"


def _top(node: Node) -> tuple[str, str] | None:
    if node.number("sorted", 1):
        return None
    return "popart", "topk op when sort==false is not supported!"


_NOTICES: Mapping[tuple[str, str], Callable[[Node], tuple[str, str] | None]] = {
    ("", "GRU"): _gru,
    ("", "RNN"): _rnn,
    ("", "TopK"): _top,
}
"""The log and the warning, if there is one."""


_LAST_STATE = (
    "Looks like you are attempting to use the cell state output (LSTMOp output Y_c) and the "
    "sequence lengths input (LSTMOp input sequence_lens) of the LSTMOp at the same time, for the "
    "op %s. This is no longer supported and the cell state gradient shall just be treated as a "
    "tensor of zeros"
)


def tell_of_states(model: SessionModel, sources: Collection[str]) -> None:
    """Warns of states behind sequences of their own lengths, which have no gradient in PopART."""
    if not model.is_of_popart or not sources or model.final_loss is None:
        return
    wanted = Differentiated.of(model, sources)
    for op, node in nodes_of(model.graph, model.weights):
        if has_own_lengths(op) and op.output_names[STATE] in wanted.loss and wanted.places(op):
            log_of("opx").warning(_LAST_STATE, node)


def tell_notices(model: SessionModel) -> None:
    """Warns of what PopART does not do as a model asks for it."""
    for op, node in nodes_of(model.graph, model.weights) if model.is_of_popart else ():
        rule = _NOTICES.get((op.domain, op.op_type))
        told = None if rule is None else rule(node)
        if told is not None:
            log_of(told[0]).warning("%s", told[1])
