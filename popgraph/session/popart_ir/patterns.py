"""PopART's patterns on a graph of operators, each by its name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from popgraph.session.popart_ir import (
    gradient_patterns,
    losses,
    matmuls,
    moves,
    pad_sums,
    recurrent,
)
from popgraph.session.popart_ir.expression import replace_by
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.session.popart_ir.remote_ops import shown
from popgraph.session.popart_ir.tied_gathers import tied_gather
from popgraph.support.logs import log_of

_ROUNDS = 50
"""More often than this no pattern helps another one; PopART has a limit, too."""


@dataclass(frozen=True)
class Pattern:
    """A rewrite: what it touches must not be anchored."""

    name: str
    apply: Callable[[OpGraph, Op, Stage], bool]
    """Rewrites if the operator matches, and says whether it did."""


@dataclass(frozen=True)
class Stage:
    """What patterns ask about the session."""

    trains: bool
    has_gradients: bool = False
    """The backward half is there."""
    accumulates: bool = False
    """Gradients of several micro-batches are added up."""


def apply_patterns(graph: OpGraph, enabled: Collection[str], stage: Stage) -> None:
    """Applies the enabled patterns until none matches."""
    wanted = [pattern for pattern in _PATTERNS if pattern.name in enabled]
    for _ in range(_ROUNDS):
        changes = [_round(graph, pattern, stage) for pattern in wanted]
        if not any(changes):
            return


def _round(graph: OpGraph, pattern: Pattern, stage: Stage) -> bool:
    changed, log = False, log_of("pattern")
    told = log.isEnabledFor(logging.DEBUG)
    for op in list(graph.ops):
        if graph.holds(op) and pattern.name not in op.settings.excluded:
            before = shown(op) if told else ""
            applied = pattern.apply(graph, op, stage)
            changed |= applied
            if applied and told:
                log.debug("Applying pattern %s to %s", pattern.name, before)
    return changed


def _by_expressions(name: str) -> Pattern:
    expressions = gradient_patterns.EXPRESSIONS[name]

    def apply(graph: OpGraph, op: Op, stage: Stage) -> bool:
        if op.type not in expressions:
            return False
        expression = expressions[op.type]
        if op.type in gradient_patterns.REDUCED:
            gradient_patterns.replace_and_reduce(graph, op, expression)
        else:
            replace_by(graph, op, expression)
        return True

    return Pattern(name, apply)


def _plain(function: Callable[[OpGraph, Op], bool]) -> Callable[[OpGraph, Op, Stage], bool]:
    return lambda graph, op, stage: function(graph, op)


def _identity(graph: OpGraph, op: Op, stage: Stage) -> bool:
    return moves.op_to_identity(graph, op, trains=stage.trains)


def _split(graph: OpGraph, op: Op, stage: Stage) -> bool:
    return (stage.has_gradients or not stage.trains) and moves.split(graph, op)


def _tied_gather(graph: OpGraph, op: Op, stage: Stage) -> bool:
    early = not stage.has_gradients and (stage.accumulates or not stage.trains)
    return early and tied_gather(graph, op)


_PATTERNS = [
    Pattern("PreUniRepl", _plain(moves.before_one)),
    Pattern("PostNRepl", _plain(moves.after_copy)),
    Pattern("SoftmaxGradDirect", _plain(losses.softmax_gradient)),
    Pattern("NlllWithSoftmaxGradDirect", _plain(losses.loss_with_gradient)),
    Pattern("OpToIdentity", _identity),
    *map(_by_expressions, gradient_patterns.EXPRESSIONS),
    Pattern("ConvDataGrad", _plain(gradient_patterns.convolution)),
    Pattern("ConvTranspose", _plain(gradient_patterns.transposed_convolution)),
    Pattern("ConvFlipWeightsDoubleFlip", _plain(gradient_patterns.two_flips)),
    Pattern("MatMulOp", _plain(matmuls.product)),
    Pattern("MatMulLhsGradOp", _plain(matmuls.left_gradient)),
    Pattern("MatMulRhsGradOp", _plain(matmuls.right_gradient)),
    Pattern("RandomNormalLikeOpPattern", _plain(moves.random_normal_like)),
    Pattern("RandomUniformLikeOpPattern", _plain(moves.random_uniform_like)),
    Pattern("ZerosLikeOpPattern", _plain(moves.zeros_like)),
    Pattern("ScanToLoop", _plain(moves.scan_to_loop)),
    Pattern("UpsampleToResize", _plain(moves.upsample)),
    Pattern("LSTMOp", _plain(recurrent.lstm)),
    Pattern("TiedGather", _tied_gather),
    Pattern("ExpandCast", _plain(moves.cast_of_expanded)),
    Pattern("SplitOp", _split),
    Pattern("SplitGradOpToConcat", _plain(moves.split_gradient)),
    Pattern("Slice2SliceSubsample", _plain(moves.strided_slice)),
    Pattern("PadSum", _plain(pad_sums.sum_of_pads)),
    Pattern("SumToAdd", _plain(moves.sum_to_add)),
    Pattern("NegativeOneScale", _plain(moves.negative_scale)),
    Pattern("TransposeToIdentityOrReshapePattern", _plain(moves.needless_transpose)),
]
"""In the order in which they are tried."""

IN_THE_IR = frozenset(pattern.name for pattern in _PATTERNS)
"""The patterns that rewrite operators here."""
