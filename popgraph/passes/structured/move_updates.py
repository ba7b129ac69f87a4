"""Moves updates of variables up, after the last use of the old value, to shorten live ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import Pure

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program import ConstantOp, ReturnOp, UpdateOp, VariableOp, graphs_of
from popgraph.dialects.tile import ViewOp
from popgraph.passes.base import Compilation, Pass
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class MoveUpdates(Pass):
    """
    Move work that only updates of variables need up to its last operand.

    An update at the end of the step would keep the activations of its gradient alive until then.
    The operation that computes an updated value follows the last reader of the old one, so that it
    can work in place. Operations whose result takes no less memory than their operands, such as
    packed or transformed activations, wait for the first operation that reads it.
    """

    name = "move-updates"
    AFTER = ("fuse-attention", "fuse-channels", "hoist-constants")

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            _move(graph.block)


def _move(block: Block) -> None:
    ordered = [*_Order(list(block.ops)).ops()]
    if ordered != list(block.ops):
        for op in ordered:
            op.detach()
        block.add_ops(ordered)


class _Order:
    """An order of the operations of a step in which private work of updates is early."""

    def __init__(self, ops: Sequence[Operation]) -> None:
        self._numbers = {op: number for number, op in enumerate(ops)}
        self._private = _private(ops)
        self._old_readers = _old_readers(ops)
        self._positions = self._earliest()
        self._emitted = set[Operation]()

    def _earliest(self) -> dict[Operation, int]:
        """For each operation, the number of the last other one that it must follow."""
        # Optimizer state, which is declared after the backward pass, delays nothing.
        found = {
            op: -1 if isinstance(op, VariableOp | ConstantOp) else number
            for op, number in self._numbers.items()
        }
        for op in self._numbers:
            if op in self._private:
                found[op] = _last(_read_by(op), found)
        for op, readers in self._old_readers.items():
            if op in self._private:
                found[op] = max(found[op], _last(readers, found))
        return found

    def ops(self) -> Iterator[Operation]:
        """The operations in the new order."""
        steps = dict[int, list[Operation]]()
        # Private work follows the operation of its position.
        for op in sorted(self._numbers, key=lambda one: one in self._private):
            if op not in self._private or _is_stored(op) or _frees_memory(op):
                steps.setdefault(self._positions[op], []).append(op)
        for number in sorted(steps):
            for op in steps[number]:
                if op not in self._private:
                    yield op
                elif op not in self._emitted:
                    yield from self._emit(op, number)

    def _emit(self, op: Operation, number: int) -> Iterator[Operation]:
        """
        A private operation, then updates of the same weight that read the same values.

        Readers of the old value of a variable come before the operation that computes a new one.
        """
        waiting = [op]
        while waiting:
            one = waiting.pop(0)
            for reader in self._old_readers.get(one, ()):
                needed = self._missing(reader)
                if one not in needed:
                    yield from self._marked(needed)
            needed = self._missing(one)
            yield from self._marked(needed)
            waiting += [
                reader
                for source in needed
                for reader in _users(source)
                if reader in self._private
                and reader not in self._emitted
                and _is_stored(reader)
                and self._positions[reader] <= number
            ]

    def _missing(self, op: Operation) -> list[Operation]:
        """The private operations, in order, that another one still needs, and itself."""
        found, waiting = set[Operation](), [op]
        while waiting:
            one = waiting.pop()
            if one in self._private and one not in self._emitted and one not in found:
                found.add(one)
                waiting += _read_by(one)
        return sorted(found, key=self._numbers.__getitem__)

    def _marked(self, ops: Sequence[Operation]) -> Sequence[Operation]:
        self._emitted.update(ops)
        return ops


def _old_readers(ops: Sequence[Operation]) -> dict[Operation, list[Operation]]:
    """For each operation that computes new values of variables, the readers of the old ones."""
    variables = {op.variable.text: op.result for op in ops if isinstance(op, VariableOp)}
    found: dict[Operation, list[Operation]] = {}
    for op in ops:
        if isinstance(op, UpdateOp) and op.variable.text in variables:
            maker = op.value.owner
            if isinstance(maker, Operation):
                readers = _readers(variables[op.variable.text])
                found.setdefault(maker, []).extend(one for one in readers if one is not maker)
    return found


def _last(ops: Iterable[Operation], positions: Mapping[Operation, int]) -> int:
    return max((positions[op] for op in ops if op in positions), default=-1)


def _users(op: Operation) -> list[Operation]:
    return [use.operation for result in op.results for use in result.uses]


def _is_stored(op: Operation) -> bool:
    """Whether an operation computes the next value of a variable."""
    return any(isinstance(one, UpdateOp) for one in _users(op))


def _private(ops: Sequence[Operation]) -> set[Operation]:
    """The pure operations that only updates of one weight, and of its optimizer state, need."""
    weights: dict[Operation, str] = {}
    for op in reversed(ops):
        if isinstance(op, UpdateOp):
            weights[op] = op.variable.text.partition("___")[2] or op.variable.text
        elif op.operands and not isinstance(op, VariableOp) and op.has_trait(Pure):
            found = {weights.get(user, "") for user in _users(op)}
            if len(found) == 1 and "" not in found:
                weights[op] = found.pop()
    return {op for op in weights if not isinstance(op, UpdateOp)}


def _frees_memory(op: Operation) -> bool:
    """Whether the results of an operation take less memory than its computed operands."""
    read = {one for one in op.operands if not isinstance(one.owner, VariableOp | ConstantOp)}
    return sum(map(_bytes, op.results)) < sum(map(_bytes, read))


def _bytes(value: SSAValue) -> int:
    type_ = value.type
    return prod(type_.get_shape()) * element_bytes(type_) if isinstance(type_, TensorType) else 0


def _read_by(op: Operation) -> list[Operation]:
    """The producers of the operands of an operation, including those in its regions."""
    values = [value for inner in op.walk() for value in inner.operands]
    return [owner for value in values if isinstance(owner := value.owner, Operation)]


def _readers(value: SSAValue) -> Iterator[Operation]:
    """Yields the operations that read a value, or a view of it, except `pg.return`."""
    # A returned value gets memory of its own, so it does not delay the update.
    seen = [value]
    while seen:
        for use in seen.pop().uses:
            if not isinstance(use.operation, ReturnOp):
                yield use.operation
            if isinstance(use.operation, ViewOp):
                seen.append(use.operation.output)
