"""PopART's warnings about a model: ignored inputs, missing gradients, and constants not folded."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from popgraph.dialects.onnx import Graph, value_name
from popgraph.popart.model.popart_semantics import LENGTHS, STATE, has_own_lengths
from popgraph.popart.refusals.operators import GradientScope, nodes_to_check
from popgraph.popart.refusals.table import RefusalContext, SessionPhase, rule_at
from popgraph.support.logs import TRACE, log_of


@rule_at(SessionPhase.READ)
def notices(context: RefusalContext) -> None:
    """Warns of sequence lengths that PopART ignores."""
    for op, node in nodes_to_check(context):
        if op.domain:
            continue
        if op.op_type == "GRU" and node.has(LENGTHS):
            log_of("op").warning("Gru optional input `sequence_lens' will be ignored")
        if op.op_type == "RNN" and node.has(LENGTHS):
            log_of("op").warning("optional input `sequence_lens' of %s will be ignored", node)
        if op.op_type == "TopK" and not node.number("sorted", 1):
            log_of("popart").warning("topk op when sort==false is not supported!")


@rule_at(SessionPhase.READ)
def states(context: RefusalContext) -> None:
    """Warns of cell states after sequences with individual lengths, whose gradient PopART omits."""
    wanted = GradientScope.of(context.model, context.differentiated)
    for op, node in nodes_to_check(context) if wanted.moved else ():
        if (
            has_own_lengths(op)
            and op.output_names[STATE] in wanted.loss
            and wanted.gradient_operands(op)
        ):
            log_of("opx").warning(_LAST_STATE, node)


_LAST_STATE = (
    "Looks like you are attempting to use the cell state output (LSTMOp output Y_c) and the "
    "sequence lengths input (LSTMOp input sequence_lens) of the LSTMOp at the same time, for the "
    "op %s. This is no longer supported and the cell state gradient shall just be treated as a "
    "tensor of zeros"
)


# constants


@rule_at(SessionPhase.READ)
def weights_that_vary(context: RefusalContext) -> None:
    """
    Warns of weights that cannot be constant, since their value differs between groups of replicas.
    """
    for id, one in context.grouped.items() if context.constant_weights else ():
        log_of("popart").warning(
            'Tensor %s was declined as a target of optimization "constantWeights" on the grounds '
            "that the tensor's %s do not allow for the TensorType::Variable to be initialized as a "
            "TensorType::Const",
            id,
            one.settings,
        )


@rule_at(SessionPhase.READ)
def operators_of_constants(context: RefusalContext) -> None:
    """Warns of operators on constants that PopART does not fold."""
    graph, log = context.model.graph, log_of("ces")
    if not context.model.is_of_popart:
        return
    known = _OF_WEIGHTS | {"Constant", "ConstantOfShape", "Shape"}
    early = "No ConstExpr implementation of %s, returning from constant folding early."
    for type_ in (op.op_type for op in graph.nodes if op.op_type not in known):
        log.log(TRACE, early, type_)
    weights = context.model.weight_names if context.constant_weights else ()
    for type_ in _unfolded_operators(graph, weights, context.flow.anchors()):
        log.warning(
            'No ConstExpr implementation of %s. Consider implementing a "constant to variable" '
            "transform.",
            type_,
        )


_OF_WEIGHTS = frozenset(
    {
        *("Add", "Cast", "Concat", "Detach", "Div", "Flatten", "Floor", "Fmod", "Gather"),
        *("Identity", "Mul", "ReduceProd", "Reshape", "Scale", "Slice", "Squeeze", "Sub"),
        *("Transpose", "Unsqueeze"),
    }
)

_OF_LITERALS = _OF_WEIGHTS | {
    *("Abs", "ConstantOfShape", "Exp", "Expand", "IdentityLoss", "Neg", "Reciprocal", "Relu"),
    "Shape",
}
"""Operators that PopART folds before it knows which weights are constant."""


def _unfolded_operators(
    graph: Graph, weights: Collection[str], anchors: Collection[str]
) -> Iterator[str]:
    """The types of operators on constants that are not folded; `weights` are constant."""
    literal, known = set[str](), set(weights)
    for op in graph.nodes:
        inputs = {value_name(value) for value in op.input_values() if value is not None}
        if op.op_type in ("Constant", "Shape"):
            literal.update(op.output_names)
        elif (
            not inputs
            or not inputs <= known | literal
            or not set(anchors).isdisjoint(op.output_names)
        ):
            continue
        elif op.op_type not in (_OF_LITERALS if inputs <= literal else _OF_WEIGHTS):
            yield op.op_type
        elif inputs <= literal:
            literal.update(op.output_names)
        else:
            known.update(op.output_names)


# transforms


@rule_at(SessionPhase.READ)
def custom_transforms(context: RefusalContext) -> None:
    """Logs requested transforms that PopART does not have; existing ones change no result."""
    log, settings = log_of("transform"), context.options.experimentalSettings
    chosen = {} if context.rule else settings.customTransformApplierSettings
    for point, names in sorted(chosen.items()):
        if point not in _POINTS:
            log.error("'%s' is not a valid customTransformApplierSettings option.", point)
            continue
        for name in names:
            if name not in _TRANSFORMS:
                log.error("Transform '%s' does not exist or is not allowed to be used.", name)


_POINTS = frozenset({"Fwd0", "Fwd1", "Bwd0", "PreAlias", "MainLoops", "Final"})
_TRANSFORMS = frozenset(
    {
        *("AccumuateOuterFragmentParallelizer", "Autodiff", "AutoVirtualGraph"),
        *("AutomaticLossScale", "BatchSerialize", "ClipWeightGradientsByNorm"),
        *("ContiguateCollectivesTransform", "DecomposeGradSum", "DecomposeLoops", "DecomposeSum"),
        *("DynamicOpTransform", "EnsureFp32LossScale", "ExplicitRecompute", "HostIOSetup 1"),
        *("HostIOSetup 2", "InferPipelineStages", "InterIpuCopy", "IoComputeTileCopy", "MainLoops"),
        *("InplaceAccumulateGradPartialsIntoOptimizerAccumTensor", "MergeAllVarUpdates"),
        *("MergeCollectivesTransform", "MergeCopies", "MergeDuplicateOps", "MergeExchange"),
        *("MergeLoops", "MergeLooseThreshold", "MergeTightThreshold", "OverlapIO", "Pipeline"),
        *("PreAutomaticLossScale", "Prune", "RandomSetup", "RemoteSetup", "SerializeMatMuls"),
        *("StochasticRounding", "StreamingMemory 1", "StreamingMemory 2", "SubgraphOutline"),
    }
)
"""The names of PopART's transforms."""
