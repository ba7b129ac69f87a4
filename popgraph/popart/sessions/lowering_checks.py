"""What PopART refuses of operators when it makes a program of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from popgraph.builder.opset.checks import Node
from popgraph.builder.opset.checks.reading import nodes_of
from popgraph.builder.opset.checks.rules import conv_partials, product_partials
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.exceptions import popart_exception
from popgraph.popart.model.model import SessionModel

_HINT = "popgraph.compile takes what ONNX allows"


def _both_directions(node: Node) -> str | None:
    if node.word("direction") != "bidirectional":
        return None
    return f"Bidirectional GRU has not yet been implemented. This is for Op {node}"


def check_libraries(model: SessionModel, options: SessionOptions, *, training: bool) -> None:
    """Refuses what options say to the libraries of operators that the model has, if they do."""
    used = {op.op_type for op in model.graph.nodes}
    if used & {"MatMul", "Gemm"} and options.partialsTypeMatMuls:
        _refuse(product_partials(options.partialsTypeMatMuls), "partialsTypeMatMuls")
    if used & {"Conv", "MultiConv"} and (given := options.convolutionOptions.get("partialsType")):
        _refuse(conv_partials(given), "convolutionOptions")
    mode = options.lstmOptions.get("recomputationMode", "none")
    if training and "LSTM" in used and mode not in ("none", "cellAndTanh", "full"):
        _refuse(f"Unrecognised lstm recomputation mode '{mode}'", "lstmOptions")


def _refuse(said: str | None, option: str) -> None:
    if said is not None:
        raise popart_exception(said, f"SessionOptions.{option}")


Rules = Mapping[tuple[str, str], Callable[[Node], str | None]]
OPERATORS: Rules = {("", "GRU"): _both_directions}
"""What is wrong with an operator, if anything is."""


def check_operators(model: SessionModel) -> None:
    """Refuses a model of PopART that it cannot make a program of."""
    for op, node in nodes_of(model.graph, model.weights) if model.is_of_popart else ():
        rule = OPERATORS.get((op.domain, op.op_type))
        if rule is not None and (said := rule(node)) is not None:
            raise popart_exception(said, op.where(), _HINT)
