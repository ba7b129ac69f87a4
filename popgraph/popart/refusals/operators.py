"""Operators that PopART refuses, alone or with certain options."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass

from popgraph.builder.opset.checks import Node
from popgraph.builder.opset.checks.reading import nodes_of
from popgraph.builder.opset.checks.rules import conv_partials, product_partials
from popgraph.builder.opset.enums import ExchangeStrategy, RecomputationType, VirtualGraphMode
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx import OnnxOp, value_name
from popgraph.dialects.onnx.annotations import EXCLUDED, notes_in
from popgraph.dialects.onnx.op import to_python
from popgraph.popart.exceptions import popart_exception
from popgraph.popart.model.model import SessionModel
from popgraph.popart.refusals.table import Asked, Moment, Refusals, at
from popgraph.support.logs import log_of


@dataclass(frozen=True)
class Differentiated:
    """Tensors that receive a gradient of the loss, and tensors that depend on its sources."""

    loss: Set[str]
    moved: Set[str]

    @classmethod
    def of(cls, model: SessionModel, sources: Collection[str]) -> Differentiated:
        """Empty sets without training."""
        if not sources or model.final_loss is None:
            return cls(frozenset(), frozenset())
        passing = [op for op in model.graph.nodes if (op.domain, op.op_type) != (DOMAIN, "Detach")]
        moved = set(sources)
        for op in passing:
            if not moved.isdisjoint(_operands(op)):
                moved.update(filter(None, op.output_names))
        return cls(_feeding(passing, [model.final_loss]), moved)

    def places(self, op: OnnxOp) -> list[int]:
        """The operand indices with a gradient."""
        if self.loss.isdisjoint(op.output_names):
            return []
        return [place for place, name in enumerate(_operands(op)) if name in self.moved]


def _operands(op: OnnxOp) -> list[str]:
    """The operand names of a node, "" for an absent one."""
    return ["" if value is None else value_name(value) for value in op.input_values()]


def _feeding(nodes: list[OnnxOp], wanted: Collection[str]) -> Set[str]:
    """These tensors and all their ancestors."""
    found = set(wanted)
    for op in reversed(nodes):
        if not found.isdisjoint(op.output_names):
            found.update(filter(None, _operands(op)))
    return found


def nodes_to_check(asked: Asked) -> Iterator[tuple[OnnxOp, Node]]:
    """The nodes of a model whose opset PopART supports."""
    model = asked.model
    return nodes_of(model.graph, model.weights) if model.is_of_popart else iter(())


@at(Moment.READ, "SessionOptions.autoRecomputation")
def recomputation(asked: Asked) -> Refusals:
    """Refuses `autoRecomputation` together with nodes marked for recomputation."""
    automatic = asked.options.autoRecomputation is not RecomputationType.NoRecompute
    phased = asked.options.executionPhaseSettings.phases > 1
    if automatic and not phased and any(map(asked.model.is_recomputed, asked.model.graph.nodes)):
        yield popart_exception(
            "A mixture of auto and manual recomputation is not supported",
            "SessionOptions.autoRecomputation",
            "leave it out, or recomputeOutput",
        )


@at(Moment.READ)
def exchanges(asked: Asked) -> Refusals:
    overlapping = (ExchangeStrategy.OverlapInnerLoop, ExchangeStrategy.OverlapLoops)
    off = asked.options.virtualGraphMode is VirtualGraphMode.Off
    for strategy in asked.strategies:
        if strategy is ExchangeStrategy.OverlapStep:
            yield "ExchangeStrategy::OverlapStep is not yet supported."
        if strategy in overlapping and (off or not asked.explicit):
            yield (
                "ExchangeStrategy::OverlapInnerLoop, ExchangeStrategy::OverlapLoops require "
                "SessionOptions::useHostCopyOps, SessionOptions::enableExplicitMainLoops, "
                "VirtualGraphMode::(Manual, Auto, ExecutionPhases) to be enabled."
            )


@at(Moment.READ)
def libraries(asked: Asked) -> Refusals:
    """Refuses invalid library options, if the model has operators that use them."""
    options, used = asked.options, {op.op_type for op in asked.model.graph.nodes}
    said: dict[str, str | None] = {}
    if used & {"MatMul", "Gemm"} and options.partialsTypeMatMuls:
        said["partialsTypeMatMuls"] = product_partials(options.partialsTypeMatMuls)
    if used & {"Conv", "MultiConv"} and (given := options.convolutionOptions.get("partialsType")):
        said["convolutionOptions"] = conv_partials(given)
    mode = options.lstmOptions.get("recomputationMode", "none")
    if asked.rule and "LSTM" in used and mode not in ("none", "cellAndTanh", "full"):
        said["lstmOptions"] = f"Unrecognised lstm recomputation mode '{mode}'"
    for option, text in said.items():
        if text is not None:
            yield popart_exception(text, f"SessionOptions.{option}")


_TRAINING_OUTPUTS = 5
"""The number of results of a BatchNormalization in training mode."""


@at(Moment.READ)
def normalizations(asked: Asked) -> Refusals:
    """
    Refuses BatchNormalization in inference mode that needs a gradient; PopART differentiates inputs
    too.
    """
    model = asked.model
    sources = {*model.graph.input_names, *model.weight_names} if asked.rule else ()
    wanted = Differentiated.of(model, sources)
    for op, node in nodes_to_check(asked) if sources and model.final_loss else ():
        count = sum(map(bool, node.outputs))
        if op.op_type != "BatchNormalization" or count == _TRAINING_OUTPUTS:
            continue
        log_of("popart").warning(_INFERRING, node.numbered, count)
        if wanted.places(op):
            yield popart_exception(
                f'BatchNorm Op "{node.numbered}" has {count} output(s) which means it is in '
                "inference mode, but its gradient Op is being created. To use the BatchNorm Op in "
                "inference mode during training, it has to be detached first.",
                op.where(),
                "a detach after it stops the gradient",
            )


_INFERRING = (
    'The Ir is in training mode, yet this batch-normalization Op, "%s" has only %d output(s) which '
    "means it is in inference mode. To be in training mode, it should have 5 outputs. Is this the "
    "desired behaviour? If yes, the op needs to be detached, if not, consider using "
    "GraphTransformer::prepareNodesForTraining() to modify the ONNX Model to have all Nodes set to "
    "training mode."
)


@at(Moment.READ)
def clipped_weights(asked: Asked) -> Refusals:
    known = asked.model.weight_names
    for id in (id for group in (asked.rule.clip if asked.rule else ()) for id in group.weights):
        if id not in known:
            yield popart_exception(
                f"No Ir::Tensor with TensorId '{id}' in Tensors::get(..)",
                "ClipNormSettings",
                f"weights of this model are {', '.join(sorted(known))}",
            )


_GRADIENTS = {
    ("", "Abs", 0): "AbsGradOp",
    ("", "Cos", 0): "CosGradOp",
    ("", "ConvTranspose", 1): "ConvFlipWeightsGradOp",
    ("", "Exp", 0): "ExpGradOp",
    ("", "Reciprocal", 0): "ReciprocalGradOp",
    ("", "Sqrt", 0): "SqrtGradOp",
    ("", "Sub", 1): "SubtractArg1GradOp",
    (DOMAIN, "Atan2", 0): "Atan2Arg0GradOp",
    (DOMAIN, "Atan2", 1): "Atan2Arg1GradOp",
    (DOMAIN, "Expm1", 0): "Expm1GradOp",
    (DOMAIN, "Log1p", 0): "Log1pGradOp",
}
"""
{(domain, operator, operand): gradient operator without a kernel, which only a pattern can replace}.
"""


@at(Moment.PREPARED)
def needed_patterns(asked: Asked) -> Refusals:
    """Refuses nodes, or gradients, that PopART can compile only with a disabled pattern."""
    if not asked.patterns.insists_on_needed():
        return
    model, nodes = asked.model, list(asked.model.graph.nodes)
    fed = _feeding(nodes, asked.flow.anchors())
    for op in nodes:
        if (op.domain, op.op_type) == ("", "Cosh") and not fed.isdisjoint(op.output_names):
            yield from _without(asked, op, "CoshOp", "Cosh")
    wanted = Differentiated.of(model, asked.differentiated)
    for op in nodes:
        for place in wanted.places(op):
            pattern = _GRADIENTS.get((op.domain, op.op_type, place))
            if pattern is not None:
                yield from _without(asked, op, pattern, pattern.removesuffix("Op"))


def _without(asked: Asked, op: OnnxOp, pattern: str, shown: str) -> Refusals:
    weights = asked.model.weights
    excluded = notes_in(op, weights).get(EXCLUDED)
    names = [] if excluded is None else to_python(excluded, weights)
    assert isinstance(names, list), "excluded patterns are a list of names"
    if pattern in names or not asked.patterns.isPatternEnabled(pattern):
        yield popart_exception(
            f"Could not create opx for '{shown}'. This op should have been removed by pattern "
            f"{pattern}",
            op.where(),
            f'patterns.enablePattern("{pattern}", True), and do not exclude it from the node',
        )


@at(Moment.PREPARED)
def bidirectional(asked: Asked) -> Refusals:
    for op, node in nodes_to_check(asked):
        key = op.domain, op.op_type
        if key == ("", "GRU") and node.word("direction") == "bidirectional":
            yield popart_exception(
                f"Bidirectional GRU has not yet been implemented. This is for Op {node}",
                op.where(),
                "popgraph.compile takes what ONNX allows",
            )
