"""What PopART asks of recurrences: directions, activations and hidden sizes."""

from __future__ import annotations

from popgraph.builder.opset.checks.node import Node, spaced
from popgraph.builder.opset.checks.rules import Complaints, absent

ACTIVATIONS = frozenset(["Sigmoid", "Relu", "Tanh", "Gelu", "Swish", "Softmax"])
"""What recurrences may have between their products."""


def hidden_size(node: Node) -> Complaints:
    shape, given = node.shape(2), node.attributes.get("hidden_size")
    if shape is not None and len(shape) == 3 and given not in (None, shape[2]):
        yield (
            f"hidden_size attribute passed to {node} ({given}) does not match hidden size "
            f"calculated from recurrenceWeights tensor ({shape[2]})."
        )


def _unknown(node: Node, count: int) -> list[str]:
    """The first of these activations that PopART does not know."""
    return [one for one in node.words("activations")[:count] if one.title() not in ACTIVATIONS]


def rnn_activation(node: Node) -> Complaints:
    given = node.words("activations")
    if "activations" in node.attributes and len(given) != 1:
        yield f"{node.made} only supports 1 activation, {len(given)} were specified"
    for one in _unknown(node, 1):
        yield f"Activation type '{one}' is not supported for {node.made}"


def rnn_direction(node: Node) -> Complaints:
    if node.word("direction", "forward") != "forward":
        yield f"{node.made} only supports `forward' direction"


def lstm_direction(node: Node) -> Complaints:
    if node.word("direction", "forward") != "forward":
        yield "LSTMOp attribute `direction' must be unset or `forward'"


def lstm_activations(node: Node) -> Complaints:
    given = node.words("activations")
    for one in _unknown(node, 2):
        yield f"Activation type '{one}' is not supported"
    if len(given) > 2 and given[1] != given[2]:
        yield "LSTM activations must be the same for output and forget gates."
    if len(given) > 3:
        yield (
            f"Too many activations ({len(given)}) specified. Number of activations should be 1 "
            "or 3."
        )


def lengths(node: Node) -> Complaints:
    data, shape = node.shape(), node.shape(4)
    if shape is not None and len(shape) != 1:
        yield f"Invalid rank for sequence length tensor : {len(shape)} != 1"
    elif shape is not None and data is not None and len(data) == 3 and shape[0] != data[1]:
        yield f"Incorrect sequence len shape : {spaced(shape)} != [{data[1]}]"


def peepholes(node: Node) -> Complaints:
    if node.has(7):
        yield "Popart does not support peephole connections"


def forget(node: Node) -> Complaints:
    if node.number("input_forget"):
        yield f"{node.op_type}Op attribute `input_forget' must be set to 0"


_RNN = [
    absent(name, f"Attribute `{name}' of {{node.made}} is not supported")
    for name in ("activation_alpha", "activation_beta", "clip")
]
_LSTM = [
    absent(name, f"LSTMOp attribute `{name}' is not supported")
    for name in ("activation_alpha", "activation_beta", "clip")
]
_GRU = [
    absent(name, f"GRUOp attribute `{told}' is not supported")
    for name, told in (
        ("activations", "activations"),
        ("activation_alpha", "activation_alpha"),
        ("activation_beta", "activation_alpha"),  # PopART's text names the other one
        ("clip", "clip"),
    )
]

ROWS = {
    "GRU": (*_GRU, forget, hidden_size),
    "LSTM": (
        lstm_direction,
        lstm_activations,
        *_LSTM,
        forget,
        peepholes,
        hidden_size,
        lengths,
    ),
    "RNN": (rnn_activation, *_RNN, rnn_direction, hidden_size),
}
