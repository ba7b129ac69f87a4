"""What PopART refuses of operators, and of their gradients, when it makes a program of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from popgraph.builder.opset.checks import Node
from popgraph.builder.opset.checks.reading import nodes_of
from popgraph.builder.opset.checks.rules import conv_partials, product_partials
from popgraph.builder.opset.exceptions import popart_exception
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx import OnnxOp
from popgraph.session.model import SessionModel
from popgraph.session.needed_patterns import Differentiated
from popgraph.session.options import SessionOptions

_HINT = "popgraph.compile takes what ONNX allows"


def _both_directions(node: Node) -> str | None:
    if node.word("direction") != "bidirectional":
        return None
    return f"Bidirectional GRU has not yet been implemented. This is for Op {node}"


def _scales(node: Node) -> str | None:
    if node.has(_SCALE) and not node.has(_OTHER_SCALE):
        return "Unsupported tensor scale0 with non-tensor scale1."
    scale = node.attributes.get("scale0", 1.0)
    if node.has(_OTHER_SCALE) and not node.has(_SCALE) and scale != 1:
        return f"Unsupported scale0 {scale} with tensor scale1."
    return None


_SCALE, _OTHER_SCALE = 2, 3
"""The places of the scales of ScaledAdd that are tensors."""


def _linear(node: Node) -> str | None:
    if node.word("mode", "nearest") != "linear":
        return None
    return "Resize mode 'linear' is not supported when training."


def _beside_source(node: Node) -> str | None:
    if node.number("enable_index_broadcast", 1) or node.shape(0) == node.shape(1):
        return None
    return (
        "ScatterReduceGradOpx: The backward pass is implemented only for src.shape == index.shape."
    )


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
OPERATORS: Rules = {("", "GRU"): _both_directions, (DOMAIN, "ScaledAdd"): _scales}
GRADIENTS: Rules = {("", "Resize"): _linear, (DOMAIN, "ScatterReduce"): _beside_source}
"""What is wrong with an operator, and with one that a gradient passes, if anything is."""


def check_operators(model: SessionModel, sources: Collection[str]) -> None:
    """
    Refuses a model of PopART that it cannot make a program of.

    `sources` are the tensors for which gradients are computed; none where nothing is trained.
    """
    for op, said in _complaints(model, sources) if model.is_of_popart else ():
        raise popart_exception(said, op.where(), _HINT)


def _complaints(model: SessionModel, sources: Collection[str]) -> Iterator[tuple[OnnxOp, str]]:
    trains = bool(sources) and model.final_loss is not None
    wanted = Differentiated.of(model, sources) if trains else None
    for op, node in nodes_of(model.graph, model.weights):
        rules = [OPERATORS.get((op.domain, op.op_type))]
        if wanted is not None and wanted.places(op):
            rules.append(GRADIENTS.get((op.domain, op.op_type)))
        for rule in rules:
            if rule is not None and (said := rule(node)) is not None:
                yield op, said
