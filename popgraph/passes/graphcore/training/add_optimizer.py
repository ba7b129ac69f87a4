"""Adds the optimizer: gradients become updates of variables, scalars and optimizer state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue, Use
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.dialects.graphcore.broadcasting import reshaped
from popgraph.dialects.graphcore.exchanges import ExchangeOp
from popgraph.dialects.graphcore.lookup import GatherOp
from popgraph.dialects.graphcore.movement import PadOp, SliceOp
from popgraph.dialects.program import GraphOp, UpdateOp, VariableOp, WeightStore
from popgraph.dialects.program.ops import Literal
from popgraph.dialects.program.weights import INLINE_BYTES
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.training.autodiff import DELAYED, PREFIX, requested
from popgraph.passes.graphcore.training.terms import Term
from popgraph.passes.graphcore.training.update_rules import UpdateRule, norm_squared, rule_for
from popgraph.passes.optimizer_spec import OF_WEIGHT, OptimizerSpec
from popgraph.passes.options import Options
from popgraph.passes.replication import belongs
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import PassError
from popgraph.support.ranks.communicator import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from popgraph.support.shapes import Shape, prod

UPDATED = "UpdatedVar___"
"""An extra output of this name and a variable's is the variable's next value."""
ACCUMULATED = "Accum___"
"""With a weight's name: its gradients so far."""
RANK = "Rank___fromHost"
"""The number of this process, where each updates a share of weights."""
COUNTER = "Counter___accumulation"
"""How many micro-batches have been added up since the last update."""


@dataclass(frozen=True)
class AddOptimizer(Pass):
    """
    Gradients that are outputs (`Gradient___w`) become updates of the variables.

    `optimizer` is the one line form of an `OptimizerSpec`. Those outputs go, but for the tensors
    in `gradients`. `extra_outputs`: variables, optimizer state and streamed scalars by name, as
    they are after the step, `UpdatedVar___w`, and what rules tell on the way, as `AdamUpdater___w`.
    """

    name = "add-optimizer"
    KEEPS_MEANING = False

    optimizer: str
    gradients: tuple[str, ...] = ()
    extra_outputs: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Options) -> AddOptimizer | None:
        if options.training is None:
            return None
        training = options.training
        return cls.by(training.optimizer, training.gradients, training.after_step)

    @staticmethod
    def by(
        optimizer: OptimizerSpec,
        gradients: tuple[str, ...] = (),
        extra_outputs: tuple[str, ...] = (),
    ) -> AddOptimizer:
        """The pass for an optimizer."""
        return AddOptimizer(str(optimizer), gradients, extra_outputs)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        graph = only_graph(module)
        spec = OptimizerSpec.parse(self.optimizer)
        variables = Variables(graph, compilation.weights)
        with ImplicitBuilder(Builder(InsertPoint.before(graph.return_op))):
            self._train(graph, spec, variables)
            variables.emit_updates()
        kept = requested(self.gradients)
        outputs = {
            name: value
            for name, value in graph.outputs.items()
            if name in kept or name.removeprefix(PREFIX) not in variables.trained
        }
        for name in self.extra_outputs:
            outputs[name] = variables.after(name)
        set_outputs(graph, outputs)

    def _train(self, graph: GraphOp, spec: OptimizerSpec, variables: Variables) -> None:
        contexts = {}
        for op in list(graph.variables()):
            name = op.variable.text
            gradient = graph.outputs.get(PREFIX + name)
            if gradient is None:
                continue
            whole = DELAYED + name in variables.now or self._shows(name, itself=True)
            if spec.shares_weights(prod(shape_of(op.result))) and not whole:
                op = keep_share(op, spec.ranks, variables.weights)
                variables.now[name] = op.result
                contexts[name] = WeightContext(spec, variables, op, gradient, is_share=True)
            else:
                contexts[name] = WeightContext(spec, variables, op, gradient)
        variables.trained = set(contexts)
        for context in contexts.values() if spec.keeps_means else ():
            context.average()
        several = contexts.values() if spec.ranks > 1 else ()
        shared = [one for one in several if spec.shares(one.count) and not self._shows(one.name)]
        for context in shared:
            if spec.shares_gradients(context.count):
                context.take_share()
        if spec.period > 1:
            before, last = _count(variables, spec.period)
            for context in contexts.values():
                context.accumulate(before, last)
        for context in several:
            if not context.is_told and context.spec.ranks > 1:
                (context.take_share if context in shared else context.exchange)()
        rules = {name: rule_for(context.spec, context) for name, context in contexts.items()}
        entered = {name: rule.enter() for name, rule in rules.items()}
        for name, term in _clipped(spec, entered).items():
            _finish(contexts[name], rules[name], term)

    def _shows(self, weight: str, *, itself: bool = False) -> bool:
        """Whether a state of a weight, or the weight itself, is an output, which is whole."""
        return any(
            belongs(name, weight) and (itself or name not in (weight, UPDATED + weight))
            for name in self.extra_outputs
        )


def _finish(context: WeightContext, rule: UpdateRule, entered: Term) -> None:
    context.variables.set(context.name, context.updated(rule.finish(entered)))


def _count(variables: Variables, micro_batches: int) -> tuple[Term, SSAValue]:
    """How many micro-batches of the batch were before this one, and whether it is the last."""
    before = variables.get(COUNTER, np.array(0, np.float32))
    counted = before + 1.0
    last = counted.equals(float(micro_batches))
    variables.set(COUNTER, counted.known(0.0).where(last, counted))
    return before, last


def _clipped(spec: OptimizerSpec, entered: Mapping[str, Term]) -> dict[str, Term]:
    """What enters the updates, shrunk where a group's norm is larger than its maximum."""
    result = dict(entered)
    for group in spec.clip:
        members = [name for name in entered if name in group.weights or not group.weights]
        if not members:
            raise PassError(
                f"no trained weight is among {list(group.weights)}", "clip norm settings"
            )
        wide = entered[members[0]].dtype
        squares = [norm_squared(entered[name]).cast(wide) for name in members]
        length = reduce(add, squares).sqrt()
        shrink = length.known(group.maximum) / length.maximum(group.maximum)
        for name in members:
            result[name] = entered[name] * shrink.cast(entered[name].dtype)
    return result


class Variables:
    """The variables of a graph, old and new, and what they will be after the step."""

    def __init__(self, graph: GraphOp, weights: WeightStore) -> None:
        self.graph = graph
        self.weights = weights
        self.trained: set[str] = set()
        self.now: dict[str, SSAValue] = {op.variable.text: op.result for op in graph.variables()}
        self.next: dict[str, SSAValue] = {}
        self.told: dict[str, Term] = {}
        """What rules compute on the way, by name."""

    def get(self, name: str, first: Array | Literal) -> Term:
        """The value at the start of the step of a variable, which is made if there is none."""
        if name not in self.now:
            literal = self.weights.attribute(first) if isinstance(first, np.ndarray) else first
            self.now[name] = VariableOp(name, literal).result
        return self.term(self.now[name])

    def set(self, name: str, value: Term) -> None:
        self.next[name] = value.operand

    def term(self, value: SSAValue) -> Term:
        return Term(value, dtype_of(value), self.weights)

    def emit_updates(self) -> None:
        for name, value in self.next.items():
            UpdateOp(name, value)

    def after(self, name: str) -> SSAValue:
        """The value of a variable after the step; what is an output and none stays what it is."""
        if name in self.told:
            return self.told[name].operand
        variable = name.removeprefix(UPDATED)
        given = {op.variable.text: op.value for op in self.graph.updates()}
        found = given.get(variable, self.now.get(variable, self.graph.outputs.get(name)))
        if found is None:
            raise PassError(
                f"the program has no variable {variable!r}",
                "extra outputs",
                f"it has {', '.join(self.now) or 'none'}",
            )
        return found


class WeightContext:
    """One weight that is trained: its value, gradient, scalars and state, all in one type."""

    def __init__(
        self,
        spec: OptimizerSpec,
        variables: Variables,
        op: VariableOp,
        gradient: SSAValue,
        *,
        is_share: bool = False,
    ) -> None:
        """Of the weight, this rank has only a share, or all of it."""
        self.name = op.variable.text
        self.literal = op.literal
        self.dtype = dtype_of(op.result)
        self.compute = state_dtype(self.dtype)
        self.spec = spec.for_weight(self.name)
        self.compounds = spec.compounds(self.name, self.dtype)
        self.variables = variables
        self.weight = variables.term(op.result).cast(self.compute)
        self.gradient = variables.term(gradient).cast(self.compute)
        self.shape: Shape = shape_of(op.result)
        self.count = prod(shape_of(gradient))
        self.last: SSAValue | None = None
        self.whole: Term | None = None
        """The weight, where this rank updates a share of it."""
        self.is_share = is_share
        self.is_told = False
        """Whether the gradient is already that of all ranks."""

    def average(self) -> None:
        """The gradient is a share of the mean of those that the runs of all ranks have added up."""
        self.gradient = self.gradient * (1.0 / (self.spec.at_once * self.spec.ranks))

    def accumulate(self, before: Term, last: SSAValue) -> None:
        """
        From here on the gradient is the sum over micro-batches, or their mean; state moves on the
        last of them.
        """
        self.last = last
        total = self.state(ACCUMULATED)
        if self.spec.keeps_means:
            counted = before.cast(self.compute) + 1.0
            share = counted.known(1.0) / counted
            total = total * (1.0 - share) + self.gradient * share
        else:
            total += self.gradient
        held = self.variables.term(self.variables.now[ACCUMULATED + self.name])
        kept = total.cast(held.dtype)
        self.tell(ACCUMULATED, kept)
        self.variables.set(ACCUMULATED + self.name, kept.known(0.0).where(last, kept))
        self.gradient = kept.cast(self.compute)

    def exchange(self) -> None:
        """From here on the gradient is the sum over all ranks that share the weight."""
        told, self.is_told = self.spec.message_type, True
        message = self.gradient.cast(dtypes.BY_NAME[told] if told else self.compute)
        row = reshaped(message.operand, (prod(self.shape),))
        size, stride = self.spec.ranks, self.spec.rank_stride
        total = ExchangeOp(row, self.last, kind=ALL_REDUCE, size=size, stride=stride)
        whole = SSAValue.get(reshaped(total, self.shape))
        self.gradient = self.variables.term(whole).cast(self.compute)

    def take_share(self) -> None:
        """
        From here on weight and gradient are the elements that are this rank's to update.

        Before gradients are accumulated, those of each micro-batch are told, else their sum is.
        """
        ranks, share = self.spec.ranks, -(-self.count // self.spec.ranks)
        told, self.is_told = self.spec.message_type, True
        message = self.gradient.cast(dtypes.BY_NAME[told] if told else self.compute)
        row = _padded(message.operand, share * ranks)
        part = ExchangeOp(row, self.last, kind=REDUCE_SCATTER, size=ranks)
        self.gradient = self.variables.term(part.result).cast(self.compute)
        if self.is_share:
            return
        self.whole = self.weight
        rows = reshaped(_padded(self.weight.operand, share * ranks), (ranks, share))
        own = GatherOp(rows, self.variables.get(RANK, np.zeros(1, np.int64)).operand, axis=0)
        self.shape = (share,)
        self.weight = self.variables.term(SSAValue.get(reshaped(own, self.shape)))

    def updated(self, weight: Term) -> Term:
        """The whole weight after the step, when a batch is complete."""
        if self.whole is not None:
            told = ExchangeOp(
                weight.cast(self.dtype).operand, self.last, kind=ALL_GATHER, size=self.spec.ranks
            )
            shape = shape_of(self.whole.operand)
            row = SliceOp(told, starts=[0], sizes=[prod(shape)], steps=[1])
            whole = self.variables.term(SSAValue.get(reshaped(row, shape)))
            return self.at_end(whole, self.whole.cast(self.dtype))
        return self.at_end(weight, self.weight).cast(self.dtype)

    @property
    def accumulates(self) -> bool:
        return self.last is not None

    def scalar(self, prefix: str) -> Term:
        compound = self.compounds[prefix]
        if compound.constant:
            return self.weight.known(compound.value)
        return self.variables.get(compound.variable, compound.array).cast(self.compute)

    def first(self, prefix: str) -> float:
        return self.compounds[prefix].value

    def state(self, prefix: str, first: float = 0.0, of_weight: bool = False) -> Term:
        kept = state_dtype(self.dtype, self.spec.state_type(prefix))
        literal = self._first_state(first, of_weight, kept)
        return self.variables.get(prefix + self.name, literal).cast(self.compute)

    def _first_state(self, first: float, of_weight: bool, kept: DType) -> Literal:
        store, dtype, shape = self.variables.weights, kept.numpy, self.shape
        if of_weight and first != 0:
            weight = store.array(self.literal).astype(dtype)
            return store.attribute(weight * np.array(first, dtype))
        if prod(shape) * dtype.itemsize <= INLINE_BYTES:
            return store.attribute(np.full(shape, first, dtype))
        key = f"full:{first!r}:{kept.name}:{shape}"  # of this moment: ranks may take shares later
        return store.defer(key, shape, dtype, lambda: np.full(shape, first, dtype))

    def keep(self, prefix: str, value: Term) -> None:
        old = self.variables.term(self.variables.now[prefix + self.name])
        self.variables.set(prefix + self.name, self.at_end(value.cast(old.dtype), old))

    def tell(self, prefix: str, value: Term) -> None:
        self.variables.told[prefix + self.name] = value

    def at_end(self, new: Term, old: Term) -> Term:
        """`new` when a batch is complete, else `old`."""
        return new if self.last is None else new.where(self.last, old)

    def step(self) -> Term:
        name = "Step___" + self.name
        count = self.variables.get(name, np.array(0, self.compute.numpy))
        new = count + 1.0
        self.variables.set(name, self.at_end(new, count))
        return new


def keep_share(op: VariableOp, ranks: int, weights: WeightStore) -> VariableOp:
    """
    A variable of the elements that a rank has of a weight, whose first values the host gives.

    Whatever reads the weight is told the whole right before.
    """
    block, shape, dtype = op.parent, shape_of(op.result), dtype_of(op.result).numpy
    assert block is not None, "a variable stands in a graph"
    share = (-(-prod(shape) // ranks),)
    key = f"share:{dtype_of(op.result).name}:{share}"
    first = weights.defer(key, share, dtype, lambda: np.zeros(share, dtype))
    with ImplicitBuilder(Builder(InsertPoint.before(op))):
        made = VariableOp(op.variable.text, first)
    readers: dict[Operation, list[Use]] = {}
    for use in list(op.result.uses):
        reader = block.find_ancestor_op_in_block(use.operation)
        assert reader is not None, "what a graph has is read in it"
        readers.setdefault(reader, []).append(use)
    for reader, uses in readers.items():
        with ImplicitBuilder(Builder(InsertPoint.before(reader))):
            told = ExchangeOp(made.result, kind=ALL_GATHER, size=ranks)
            row = SliceOp(told, starts=[0], sizes=[prod(shape)], steps=[1])
            whole = SSAValue.get(reshaped(row, shape))
        for use in uses:
            use.operation.operands[use.index] = whole
    Rewriter.erase_op(op)
    return made


def _padded(value: SSAValue, count: int) -> SSAValue:
    """The elements in one row, with zeros behind them up to a number of elements."""
    size = prod(shape_of(value))
    row = SSAValue.get(reshaped(value, (size,)))
    if size == count:
        return row
    return PadOp(row, low=[0], high=[count - size], interior=[0], value=0.0).result


def state_dtype(weight: DType, asked: str = "") -> DType:
    """What is asked for; else state of half precision weights is kept in single precision."""
    if asked:
        return weight if asked == OF_WEIGHT else dtypes.BY_NAME[asked]
    return dtypes.BY_NAME["f32"] if weight.name in ("f16", "bf16") else weight
