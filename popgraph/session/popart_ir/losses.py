"""Patterns that compute the gradient of a softmax and its loss at once."""

from __future__ import annotations

from popgraph.session.popart_ir.graph import Op, OpGraph


def softmax_gradient(graph: OpGraph, op: Op) -> bool:
    """SoftmaxGrad(NllGrad(p, labels, g), p) -> SoftmaxGradDirect(p, labels, g)."""
    if op.type != "NllGrad" or graph.is_protected(op.output):
        return False
    users = graph.consumers(op.output)
    if len(users) != 1 or users[0].type != "SoftmaxGrad":
        return False
    (gradient,) = users
    graph.remove(op)
    made = Op(
        "SoftmaxGradDirect",
        dict(op.inputs),
        dict(gradient.outputs),
        dict(op.attributes),
        op.settings,
        backward=True,
    )
    graph.add(made, before=gradient)
    graph.remove(gradient)
    graph.rename_output(made, 0, made.outputs[0])
    return True


def loss_with_gradient(graph: OpGraph, op: Op) -> bool:
    """Nll and SoftmaxGradDirect of one loss -> NlllWithSoftmaxGradDirect, which gives both."""
    if op.type != "SoftmaxGradDirect":
        return False
    losses = [
        user
        for user in graph.consumers(op.input(0))
        if user.type == "Nll" and user.input(1) == op.input(1)
    ]
    if len(losses) != 1 or losses[0].settings.ipu != op.settings.ipu:
        return False
    (loss,) = losses
    if graph.producer(op.input(2)) in list(graph.after(loss)):
        return False  # the gradient of the loss is computed from the loss
    outputs = {0: loss.output, 1: op.output}
    graph.remove(loss)
    made = Op(
        "NlllWithSoftmaxGradDirect",
        dict(op.inputs),
        outputs,
        dict(op.attributes),
        op.settings,
        backward=True,
    )
    graph.add(made, before=op)
    graph.remove(op)
    for index, id in outputs.items():
        graph.rename_output(made, index, id)
    return True
