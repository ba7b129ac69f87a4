"""The pattern InPlace: operators that write their results over what they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from popgraph.builder.opset.enums import RecomputeType
from popgraph.session.popart_ir.graph import Kind, Op, OpGraph, words
from popgraph.session.popart_ir.placement import COPY

_VIEWS = {
    "Identity": ("IdentityInplace", 10.0),
    "IdentityGrad": ("IdentityInplace", 10.0),
    "AddBiasDataGrad": ("IdentityInplace", 10.0),
    "IfConditionGrad": ("IdentityInplace", 10.0),
    "Reshape": ("ReshapeInplace", 10.0),
    "ReshapeGrad": ("ReshapeInplace", 10.0),
    "Flatten": ("ReshapeInplace", 10.0),
    "Slice": ("SliceInplace", 10.0),
    "PadGrad": ("SliceInplace", 10.0),
    "Transpose": ("TransposeInplace", 100.0),
    "TransposeGrad": ("TransposeInplace", 100.0),
    "Concat": ("ConcatInplace", 10.0),
    "ConcatGrad": ("ConcatGradInplace", 10.0),
    "Expand": ("ExpandInplace", 10.0),
    "Detach": ("DetachInplace", 10.0),
    "Reverse": ("ReverseInplace", 10.0),
    "ReverseGrad": ("ReverseInplace", 10.0),
    "Subsample": ("SubsampleInplace", 10.0),
    "Pad": ("PadInplace", 1.0),
    "SliceGrad": ("PadInplace", 1.0),
}
"""What only shows its operand another way, by its form in place and the priority of that."""

_PRESENT_VIEWS = frozenset(["SliceInplace", "ReshapeInplace", "ConcatInplace"])
"""What comes in place already."""

_UNARY = words(
    """
    Asin Atan Ceil Clip Elu Exp Expm1 Floor Gelu GeluErf HardSigmoid LeakyRelu Log1p
    LogSoftmax NearbyInt Relu Round Scale Selu Shrink Sigmoid Sign Sinh Softmax Swish
    ThresholdedRelu IncrementMod SequenceSlice DynamicUpdate DynamicAdd DynamicZero HostLoad
    """
)

_OVER_FIRST = {name: f"{name}Inplace" for name in _UNARY} | {
    "Softplus": "SoftPlusInplace",
    "Softsign": "SoftSignInplace",
    "ScaleGrad": "ScaleInplace",
    "AddBias": "AddBiasInplace",
}
"""What writes over its first operand, by its form in place."""

_BINARY = {
    "Add": ("AddLhsInplace", "AddRhsInplace"),
    "Mul": ("MulLhsInplace", "MulRhsInplace"),
    "Pow": ("PowLhsInplace",),
    "Atan2": ("Atan2Inplace",),
    "ScaledAdd": ("ScaledAddLhsInplace", "ScaledAddRhsInplace"),
}
"""What writes over either operand, if that has the shape of the result."""


_PRODUCTS = words("MatMul Conv")
_BETWEEN = words(
    """
    Dropout ShapedDropout DropoutGrad ShapedDropoutGrad GroupNormalization Identity IdentityGrad
    IdentityInplace Reshape ReshapeGrad ReshapeInplace
    """
)
"""What may stand between a product and the Add that had better write over it."""

_SLICE = 2
"""The operand of a DynamicSlice that it may write its result over, if it is given."""


@dataclass(frozen=True)
class _Proposal:
    """A form in place: which operand it shares memory with, and whether it changes it."""

    op: Op
    type: str
    operands: tuple[int, ...]
    modifies: bool
    priority: float


class InPlace:
    """
    Makes operators work in place, those of the highest priority and the latest first.

    `over_products` has an Add write rather over what a product computes, if it reads that.
    """

    def __init__(self, graph: OpGraph, *, over_products: bool = False) -> None:
        self._graph, self._over_products = graph, over_products
        self._group: dict[str, set[str]] = {}
        self._modifiers: dict[Op, str] = {}
        self._made: set[Op] = set()

    def run(self) -> None:
        for op in self._graph.ops:
            self._note_present(op)
        proposals = [one for op in self._graph.ops for one in self._proposals(op)]
        proposals.sort(key=lambda one: (-one.priority, -one.op.number))
        for one in proposals:
            if one.priority > 0 and one.op not in self._made and self._is_possible(one):
                self._apply(one)

    def _note_present(self, op: Op) -> None:
        """What is in place already, or updates a variable."""
        if op.type in _PRESENT_VIEWS:
            for id in op.inputs.values():
                self._join(id, op.output)
        changed = op.modifies
        if changed is not None:
            self._modifiers[op] = op.input(changed)
            if changed == 0:
                self._join(op.input(0), op.output)

    def _proposals(self, op: Op) -> Iterator[_Proposal]:
        if "InPlace" in op.settings.excluded or not op.outputs or not op.inputs:
            return
        for type_, operands, modifies, priority in self._forms(op):
            wanted = op.settings.inplace.get(type_, priority)
            yield _Proposal(op, type_, operands, modifies, wanted)

    def _forms(self, op: Op) -> Iterator[tuple[str, tuple[int, ...], bool, float]]:
        if op.type == "Slice" and any(step < 0 for step in op.integers("_steps")):
            return
        if op.type in _VIEWS:
            type_, priority = _VIEWS[op.type]
            yield type_, tuple(op.inputs), False, priority
        elif op.type in _OVER_FIRST:
            yield _OVER_FIRST[op.type], (0,), True, 10.0
        elif op.type in _BINARY:
            for index, type_ in enumerate(_BINARY[op.type]):
                if self._has_result_shape(op, index):
                    better = op.type == "Add" and self._is_product(op.input(index))
                    yield type_, (index,), True, 20.0 if better else 10.0
        elif op.type == "DynamicSlice" and _SLICE in op.inputs:
            yield "DynamicSliceInplace", (_SLICE,), True, 10.0
        elif op.type == "Where":
            for index, side in ((1, "Lhs"), (2, "Rhs")):
                if self._has_result_shape(op, index):
                    yield f"Where{side}Inplace", (index,), True, 10.0
                    return

    def _is_product(self, id: str) -> bool:
        """Whether a tensor is a product that is to be written over."""
        before = self._graph.producer(id) if self._over_products else None
        while before is not None and before.type in _BETWEEN and before.inputs:
            before = self._graph.producer(before.input(min(before.inputs)))
        return before is not None and before.type in _PRODUCTS

    def _has_result_shape(self, op: Op, index: int) -> bool:
        return self._graph.shape(op.input(index)) == self._graph.shape(op.output)

    # memory that tensors share

    def _aliases(self, id: str) -> set[str]:
        return self._group.setdefault(id, {id})

    def _join(self, first: str, second: str) -> None:
        joined = self._aliases(first) | self._aliases(second)
        for id in joined:
            self._group[id] = joined

    def _is_unmodifiable(self, id: str) -> bool:
        graph = self._graph
        if graph.kind(id) in (Kind.VARIABLE, Kind.CONSTANT) or graph.is_protected(id):
            return True
        if self._is_restored(id):
            return True
        producer = graph.producer(id)
        around = [*graph.consumers(id), *([producer] if producer is not None else [])]
        return any(op.settings.recompute is RecomputeType.Recompute for op in around)

    def _is_restored(self, id: str) -> bool:
        """Whether the value of an earlier micro-batch is written over the tensor."""
        return any(user.type == "RestoreInplace" for user in self._graph.consumers(id))

    def _disturbs_copies(self, before: set[str], after: set[str]) -> bool:
        """Whether memory that is restored would be that which others rely on."""

        def relied_on(ids: set[str]) -> bool:
            users = (user for id in ids for user in self._graph.consumers(id))
            return any(map(self._is_unmodifiable, ids)) or any(op.type == COPY for op in users)

        restored = [any(map(self._is_restored, ids)) for ids in (before, after)]
        return (restored[0] and relied_on(after)) or (restored[1] and relied_on(before))

    def _is_possible(self, one: _Proposal) -> bool:
        inputs = [one.op.input(index) for index in one.operands]
        before = set().union(*(self._aliases(id) for id in inputs))
        after = self._aliases(one.op.output)
        if self._disturbs_copies(before, after):
            return False
        changed = one.modifies or any(id in after for id in self._modifiers.values())
        if changed and any(map(self._is_unmodifiable, before)):
            return False
        modifiers = [op for op, id in self._modifiers.items() if id in before | after]
        modifiers += [one.op] if one.modifies else []
        first = {op: set(self._readers(op, before | after)) for op in modifiers}
        known = self._graph.later
        if any(
            self._is_result(reader) and modifier not in known.get(reader, ())
            for modifier, readers in first.items()
            for reader in readers
        ):
            return False
        then: dict[Op, set[Op]] = {}
        for modifier, readers in first.items():
            for reader in readers:
                then.setdefault(reader, set()).add(modifier)
        return all(self._following(op, then).isdisjoint(first[op]) for op in modifiers)

    def _is_result(self, op: Op) -> bool:
        """Whether a graph gives back what an operator computes, once all of it has run."""
        return any(id in self._graph.results for id in op.outputs.values())

    def _readers(self, modifier: Op, memory: set[str]) -> Iterator[Op]:
        """
        What reads the memory as it is before `modifier` changes it.

        Updates of parts of a variable do not meet, and neither do the parts.
        """
        derived = {id for op in self._graph.after(modifier) for id in op.outputs.values()}
        for id in memory - derived:
            for user in self._graph.consumers(id):
                parts = modifier.writes and (user.writes or user.type == "SliceInplace")
                if user is not modifier and not parts:
                    yield user

    def _following(self, op: Op, then: Mapping[Op, set[Op]]) -> set[Op]:
        """What cannot run before an operator; `then` is what would have to wait besides."""
        seen, waiting = {op}, [op]
        while waiting:
            one = waiting.pop()
            users = [user for id in one.outputs.values() for user in self._graph.consumers(id)]
            for user in (*users, *self._graph.later.get(one, ()), *then.get(one, ())):
                if user not in seen:
                    seen.add(user)
                    waiting.append(user)
        return seen

    def _apply(self, one: _Proposal) -> None:
        for index in one.operands:
            self._join(one.op.input(index), one.op.output)
        if one.modifies:
            self._modifiers[one.op] = one.op.input(one.operands[0])
        one.op.type = one.type
        self._made.add(one.op)
        memory = self._aliases(one.op.output)
        for modifier, id in self._modifiers.items():
            if id in memory:
                for reader in self._readers(modifier, memory):
                    self._graph.run_after(modifier, reader)
