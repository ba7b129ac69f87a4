"""PopART's rules of recurrent operators: directions, activations and hidden sizes."""

from __future__ import annotations

from popgraph.builder.opset.checks.node import Node, spaced
from popgraph.builder.opset.checks.rules import Conflicts, checks, unsupported

ACTIVATIONS = frozenset(["Sigmoid", "Relu", "Tanh", "Gelu", "Swish", "Softmax"])
_SCALES = ("activation_alpha", "activation_beta", "clip")


@checks("RNN")
def rnn(node: Node) -> Conflicts:
    given = node.words("activations")
    if "activations" in node.attributes and len(given) != 1:
        yield f"{node.made} only supports 1 activation, {len(given)} were specified"
    for one in _unknown(given[:1]):
        yield f"Activation type '{one}' is not supported for {node.made}"
    yield from unsupported(node, "Attribute `{}' of {node.made} is not supported", *_SCALES)
    if node.word("direction", "forward") != "forward":
        yield f"{node.made} only supports `forward' direction"
    yield from _hidden_size(node)


@checks("LSTM")
def lstm(node: Node) -> Conflicts:
    if node.word("direction", "forward") != "forward":
        yield "LSTMOp attribute `direction' must be unset or `forward'"
    given = node.words("activations")
    for one in _unknown(given[:2]):
        yield f"Activation type '{one}' is not supported"
    if len(given) > 2 and given[1] != given[2]:
        yield "LSTM activations must be the same for output and forget gates."
    if len(given) > 3:
        yield (
            f"Too many activations ({len(given)}) specified. Number of activations should be 1 "
            "or 3."
        )
    yield from unsupported(node, "LSTMOp attribute `{}' is not supported", *_SCALES)
    if node.number("input_forget"):
        yield "LSTMOp attribute `input_forget' must be set to 0"
    if node.has(7):
        yield "Popart does not support peephole connections"
    yield from _hidden_size(node)


@checks("LSTM")
def lengths(node: Node) -> Conflicts:
    shape = node.shape(4)
    if len(shape) != 1:
        yield f"Invalid rank for sequence length tensor : {len(shape)} != 1"
    if node.rank() == 3 and shape != (batch := node.shape()[1:2]):
        yield f"Incorrect sequence len shape : {spaced(shape)} != {spaced(batch)}"


@checks("GRU")
def gru(node: Node) -> Conflicts:
    text = "GRUOp attribute `{}' is not supported"
    yield from unsupported(node, text, "activations", "activation_alpha")
    # PopART's message names the other attribute.
    yield from unsupported(node, text.format("activation_alpha"), "activation_beta")
    yield from unsupported(node, text, "clip")
    if node.number("input_forget"):
        yield "GRUOp attribute `input_forget' must be set to 0"
    yield from _hidden_size(node)


def _hidden_size(node: Node) -> Conflicts:
    shape, given = node.shape(2), node.attributes.get("hidden_size")
    if len(shape) == 3 and given not in (None, shape[2]):
        yield (
            f"hidden_size attribute passed to {node} ({given}) does not match hidden size "
            f"calculated from recurrenceWeights tensor ({shape[2]})."
        )


def _unknown(activations: list[str]) -> list[str]:
    return [one for one in activations if one.title() not in ACTIVATIONS]
