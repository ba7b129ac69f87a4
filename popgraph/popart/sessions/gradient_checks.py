"""What PopART refuses of operators whose gradient is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from popgraph.builder.opset.checks import Node
from popgraph.builder.opset.checks.reading import nodes_of
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.popart.exceptions import popart_exception
from popgraph.popart.model.model import SessionModel
from popgraph.popart.sessions.needed_patterns import Differentiated
from popgraph.support.logs import log_of

TRAINING_OUTPUTS = 5
"""How many results a normalization has that takes the statistics of its batch."""


def _normalization(node: Node) -> str | None:
    if (count := _results(node)) == TRAINING_OUTPUTS:
        return None
    return (
        f'BatchNorm Op "{node.numbered}" has {count} output(s) which means it is in inference '
        "mode, but its gradient Op is being created. To use the BatchNorm Op in inference mode "
        "during training, it has to be detached first."
    )


def _results(node: Node) -> int:
    return sum(map(bool, node.outputs))


_NORMALIZATIONS = (("", "BatchNormalization"), (DOMAIN, "BatchNormalization"))
GRADIENTS: Mapping[tuple[str, str], Callable[[Node], str | None]] = {
    **dict.fromkeys(_NORMALIZATIONS, _normalization),
}
"""What is wrong with an operator that a loss depends on, if anything is."""


def check_gradients(model: SessionModel) -> None:
    """Refuses a model to train; PopART makes gradients for inputs, too, before it leaves them."""
    if model.final_loss is None or not model.is_of_popart:
        return
    wanted = Differentiated.of(model, {*model.graph.input_names, *model.weight_names})
    for op, node in nodes_of(model.graph, model.weights):
        key = (op.domain, op.op_type)
        if key in _NORMALIZATIONS and _results(node) != TRAINING_OUTPUTS:
            log_of("popart").warning(_INFERRING, node.numbered, _results(node))
        rule = GRADIENTS.get(key)
        if rule is not None and wanted.places(op) and (said := rule(node)) is not None:
            raise popart_exception(said, op.where(), "a detach behind it ends the gradient")


_INFERRING = (
    'The Ir is in training mode, yet this batch-normalization Op, "%s" has only %d output(s) which '
    "means it is in inference mode. To be in training mode, it should have 5 outputs. Is this the "
    "desired behaviour? If yes, the op needs to be detached, if not, consider using "
    "GraphTransformer::prepareNodesForTraining() to modify the ONNX Model to have all Nodes set to "
    "training mode."
)
