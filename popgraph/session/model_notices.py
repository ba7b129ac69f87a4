"""What PopART warns of as it reads the operators of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from popgraph.builder.opset.checks import Node
from popgraph.builder.opset.checks.reading import nodes_of
from popgraph.session.model import SessionModel
from popgraph.session.popart_meaning import LENGTHS
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


def tell_notices(model: SessionModel) -> None:
    """Warns of what PopART does not do as a model asks for it."""
    for op, node in nodes_of(model.graph, model.weights) if model.is_of_popart else ():
        rule = _NOTICES.get((op.domain, op.op_type))
        told = None if rule is None else rule(node)
        if told is not None:
            log_of(told[0]).warning("%s", told[1])
