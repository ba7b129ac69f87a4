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
from popgraph.popart.refusals.table import RefusalContext, Refusals, SessionPhase, rule_at
from popgraph.support.logs import log_of


@dataclass(frozen=True)
class GradientScope:
    """Tensors that receive a gradient of the loss, and tensors that depend on its sources."""

    loss: Set[str]
    moved: Set[str]

    @classmethod
    def of(cls, model: SessionModel, sources: Collection[str]) -> GradientScope:
        """Empty sets without training."""
        if not sources or model.final_loss is None:
            return cls(frozenset(), frozenset())
        passing = [op for op in model.graph.nodes if (op.domain, op.op_type) != (DOMAIN, "Detach")]
        moved = set(sources)
        for op in passing:
            if not moved.isdisjoint(_operands(op)):
                moved.update(filter(None, op.output_names))
        return cls(_ancestors(passing, [model.final_loss]), moved)

    def gradient_operands(self, op: OnnxOp) -> list[int]:
        """The operand indices with a gradient."""
        if self.loss.isdisjoint(op.output_names):
            return []
        return [place for place, name in enumerate(_operands(op)) if name in self.moved]


def _operands(op: OnnxOp) -> list[str]:
    """The operand names of a node, "" for an absent one."""
    return ["" if value is None else value_name(value) for value in op.input_values()]


def _ancestors(nodes: list[OnnxOp], wanted: Collection[str]) -> Set[str]:
    """These tensors and all their ancestors."""
    found = set(wanted)
    for op in reversed(nodes):
        if not found.isdisjoint(op.output_names):
            found.update(filter(None, _operands(op)))
    return found


def nodes_to_check(context: RefusalContext) -> Iterator[tuple[OnnxOp, Node]]:
    """The nodes of a model whose opset PopART supports."""
    model = context.model
    return nodes_of(model.graph, model.weights) if model.is_of_popart else iter(())


@rule_at(SessionPhase.READ, "SessionOptions.autoRecomputation")
def recomputation(context: RefusalContext) -> Refusals:
    """Refuses `autoRecomputation` together with nodes marked for recomputation."""
    automatic = context.options.autoRecomputation is not RecomputationType.NoRecompute
    phased = context.options.executionPhaseSettings.phases > 1
    if (
        automatic
        and not phased
        and any(map(context.model.is_recomputed, context.model.graph.nodes))
    ):
        yield popart_exception(
            "A mixture of auto and manual recomputation is not supported",
            "SessionOptions.autoRecomputation",
            "leave it out, or recomputeOutput",
        )


@rule_at(SessionPhase.READ)
def exchanges(context: RefusalContext) -> Refusals:
    overlapping = (ExchangeStrategy.OverlapInnerLoop, ExchangeStrategy.OverlapLoops)
    off = context.options.virtualGraphMode is VirtualGraphMode.Off
    for strategy in context.strategies:
        if strategy is ExchangeStrategy.OverlapStep:
            yield "ExchangeStrategy::OverlapStep is not yet supported."
        if strategy in overlapping and (off or not context.explicit):
            yield (
                "ExchangeStrategy::OverlapInnerLoop, ExchangeStrategy::OverlapLoops require "
                "SessionOptions::useHostCopyOps, SessionOptions::enableExplicitMainLoops, "
                "VirtualGraphMode::(Manual, Auto, ExecutionPhases) to be enabled."
            )


@rule_at(SessionPhase.READ)
def libraries(context: RefusalContext) -> Refusals:
    """Refuses invalid library options, if the model has operators that use them."""
    options, used = context.options, {op.op_type for op in context.model.graph.nodes}
    said: dict[str, str | None] = {}
    if used & {"MatMul", "Gemm"} and options.partialsTypeMatMuls:
        said["partialsTypeMatMuls"] = product_partials(options.partialsTypeMatMuls)
    if used & {"Conv", "MultiConv"} and (given := options.convolutionOptions.get("partialsType")):
        said["convolutionOptions"] = conv_partials(given)
    mode = options.lstmOptions.get("recomputationMode", "none")
    if context.rule and "LSTM" in used and mode not in ("none", "cellAndTanh", "full"):
        said["lstmOptions"] = f"Unrecognised lstm recomputation mode '{mode}'"
    for option, text in said.items():
        if text is not None:
            yield popart_exception(text, f"SessionOptions.{option}")


_TRAINING_OUTPUTS = 5
"""The number of results of a BatchNormalization in training mode."""


@rule_at(SessionPhase.READ)
def normalizations(context: RefusalContext) -> Refusals:
    """
    Refuses BatchNormalization in inference mode that needs a gradient; PopART differentiates inputs
    too.
    """
    model = context.model
    sources = {*model.graph.input_names, *model.weight_names} if context.rule else ()
    wanted = GradientScope.of(model, sources)
    for op, node in nodes_to_check(context) if sources and model.final_loss else ():
        count = sum(map(bool, node.outputs))
        if op.op_type != "BatchNormalization" or count == _TRAINING_OUTPUTS:
            continue
        log_of("popart").warning(_INFERRING, node.numbered, count)
        if wanted.gradient_operands(op):
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


@rule_at(SessionPhase.READ)
def clipped_weights(context: RefusalContext) -> Refusals:
    known = context.model.weight_names
    for id in (id for group in (context.rule.clip if context.rule else ()) for id in group.weights):
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


@rule_at(SessionPhase.PREPARED)
def needed_patterns(context: RefusalContext) -> Refusals:
    """Refuses nodes, or gradients, that PopART can compile only with a disabled pattern."""
    if not context.patterns.insists_on_needed():
        return
    model, nodes = context.model, list(context.model.graph.nodes)
    fed = _ancestors(nodes, context.flow.anchors())
    for op in nodes:
        if (op.domain, op.op_type) == ("", "Cosh") and not fed.isdisjoint(op.output_names):
            yield from _without(context, op, "CoshOp", "Cosh")
    wanted = GradientScope.of(model, context.differentiated)
    for op in nodes:
        for place in wanted.gradient_operands(op):
            pattern = _GRADIENTS.get((op.domain, op.op_type, place))
            if pattern is not None:
                yield from _without(context, op, pattern, pattern.removesuffix("Op"))


def _without(context: RefusalContext, op: OnnxOp, pattern: str, shown: str) -> Refusals:
    weights = context.model.weights
    excluded = notes_in(op, weights).get(EXCLUDED)
    names = [] if excluded is None else to_python(excluded, weights)
    assert isinstance(names, list), "excluded patterns are a list of names"
    if pattern in names or not context.patterns.isPatternEnabled(pattern):
        yield popart_exception(
            f"Could not create opx for '{shown}'. This op should have been removed by pattern "
            f"{pattern}",
            op.where(),
            f'patterns.enablePattern("{pattern}", True), and do not exclude it from the node',
        )


@rule_at(SessionPhase.PREPARED)
def bidirectional(context: RefusalContext) -> Refusals:
    for op, node in nodes_to_check(context):
        key = op.domain, op.op_type
        if key == ("", "GRU") and node.word("direction") == "bidirectional":
            yield popart_exception(
                f"Bidirectional GRU has not yet been implemented. This is for Op {node}",
                op.where(),
                "popgraph.compile takes what ONNX allows",
            )
