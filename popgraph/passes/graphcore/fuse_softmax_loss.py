"""Fuses the gradients of softmax and negative log-likelihood into one subtraction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import ModuleOp, i64

from popgraph.dialects.graphcore import (
    AndOp,
    CastOp,
    CompareOp,
    ExpNonpositiveOp,
    LogSoftmaxGradOp,
    MulOp,
    NllLossGradOp,
    ReshapeOp,
    SoftmaxGradOp,
    SubOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import Operand, dtype_of, integer, shape_of, tensor_of
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, apply_rules
from popgraph.support.laws import Proof, function, real_law, variable

P, D = map(variable, ("p", "d"))
CROSS_ENTROPY = (
    real_law(P * (-(D / P)), -D, given=function("ne", P, 0)),
    real_law(P * (-(D / P) - (-D)), (P - 1) * D, given=function("ne", P, 0)),
    real_law(P * (0 - (-D)), (P - 0) * D),
)
"""The sum over classes, which only the label adds to; the gradient at the label, and elsewhere."""


class SubtractLabels(Rule[SoftmaxGradOp | LogSoftmaxGradOp]):
    """
    softmax_grad(p, nll_loss_grad(p, labels, d))  ->  (p - one_hot(labels)) * d

    The same for log_softmax_grad and the loss of log probabilities, with exp(p) for p. Only when
    both use the same p along its last axis, and the gradient of the loss has no other use.

    Reshapes that keep this axis may be in between. Rows are weighted by the reduction and the
    ignored index; rows with an invalid label have no gradient. For p < 1e-10 the result is exact,
    whereas the two operations would clamp, and overflow in half precision.
    """

    ROOTS = (SoftmaxGradOp, LogSoftmaxGradOp)
    PROOF = Proof(CROSS_ENTROPY, approximate="one product instead of a sum over classes")

    def rewrite(self, op: SoftmaxGradOp | LogSoftmaxGradOp) -> Operand | None:
        loss = self._loss(op)
        is_log = isinstance(op, LogSoftmaxGradOp)
        if loss is None or integer(op.axis) != len(shape_of(op.y)) - 1 or loss.is_log != is_log:
            return None
        held = loss.probabilities
        probabilities: Operand = ExpNonpositiveOp(held) if is_log else held
        hot = CastOp(loss.chosen(), to=tensor_of(op.y).element_type)
        gradient = MulOp(SubOp(probabilities, hot), self._share(loss))
        return gradient if held is op.y else ReshapeOp(gradient, shape=shape_of(op.y))

    def _loss(self, op: SoftmaxGradOp | LogSoftmaxGradOp) -> NllLossGradOp | None:
        """The loss gradient that only this softmax gradient reads; None without one."""
        given = op.dy.owner
        loss = given.x.owner if isinstance(given, ReshapeOp) else given
        if not isinstance(loss, NllLossGradOp):
            return None
        if not (op.dy.has_one_use() and loss.result.has_one_use()):
            return None
        held = loss.probabilities
        if held is op.y:
            return loss
        same_rows = shape_of(held)[-1] == shape_of(op.y)[-1]
        is_shaped = isinstance(held.owner, ReshapeOp) and held.owner.x is op.y
        return loss if same_rows and is_shaped else None

    def _share(self, loss: NllLossGradOp) -> Operand:
        """d loss / d row loss, as a column."""
        rows = shape_of(loss.labels)
        share: Operand = loss.dloss
        if loss.reduction.data == "mean":
            share = loss.shared(share)
        nothing = self.literal(np.zeros((), dtype_of(share).numpy))
        counted = WhereOp(self.counts(loss), share, nothing)
        return ReshapeOp(counted, shape=(*rows, 1))

    def counts(self, loss: NllLossGradOp) -> Operand:
        """For every row, whether its label is valid and not ignored."""
        labels = CastOp(loss.labels, to=i64)
        classes = shape_of(loss.probabilities)[-1]
        first = CompareOp(labels, self.literal(np.array(0, np.int64)), "ge")
        last = CompareOp(labels, self.literal(np.array(classes, np.int64)), "lt")
        is_class = AndOp(first, last)
        counted = loss.counted()
        return is_class if counted is None else AndOp(is_class, counted)


@dataclass(frozen=True)
class FuseSoftmaxLoss(Pass):
    """
    softmax_grad(p, nll_loss_grad(p, labels, d))  ->  (p - one_hot(labels)) * d.

    Only when both use the same p along its last axis: no division and no sum over classes is left.
    """

    name = "fuse-softmax-loss"
    TOLERANCE: ClassVar[float] = 1e-5
    AFTER = ("autodiff",)
    BEFORE = ("expand",)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        apply_rules(module, [SubtractLabels(compilation.weights)])
