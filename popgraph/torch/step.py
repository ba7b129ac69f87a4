"""Steps: compiled passes as PyTorch operations, on the memory of PyTorch's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from popgraph.backends.base import NativeExecutable
from popgraph.dialects.graphcore.random import SEED
from popgraph.passes.options import GRADIENT
from popgraph.support.arrays import Array
from popgraph.torch.capture import Captured
from popgraph.torch.programs import COTANGENT, Pair


class Step:
    """The forward and backward pass for one kind of arguments."""

    def __init__(self, captured: Captured, pair: Pair) -> None:
        self._forward, self._backward = pair.forward, pair.backward
        names = [leaf.name for leaf in captured.leaves]
        read = pair.forward.inputs
        self._read = [(at, name) for at, name in enumerate(names) if name in read]
        self._held = Held(pair.forward, names)
        self._draws = SEED in read
        self.outputs = [name for name in pair.forward.outputs if name in captured.outputs]
        assert self.outputs == list(captured.outputs), "the forward pass returns all outputs"
        self._residuals = [n for n in pair.forward.outputs if n not in captured.outputs]
        if pair.backward is not None:
            self._set_backward(pair.backward, names)

    def _set_backward(self, backward: NativeExecutable, names: Sequence[str]) -> None:
        leaves = {name: at for at, name in enumerate(names)}
        outputs = {name: at for at, name in enumerate(self.outputs)}
        self.saved_leaves = [(leaves[name], name) for name in backward.inputs if name in leaves]
        self.held_back = Held(backward, names)
        self.saved_outputs = [(outputs[name], name) for name in backward.inputs if name in outputs]
        self.cotangents = [
            (outputs[name.removeprefix(COTANGENT)], name)
            for name in backward.inputs
            if name.startswith(COTANGENT)
        ]
        self._gradients = [
            GRADIENT + name if GRADIENT + name in backward.outputs else None for name in names
        ]

    def __call__(self, leaves: Sequence[Tensor]) -> Sequence[Tensor]:
        """The outputs of the graph, which autograd can differentiate if a leaf requires it."""
        if self._backward is None:
            return self.forward(leaves)[0]
        found: tuple[Tensor, ...] = Differentiated.apply(self, *leaves)
        return found

    def forward(self, leaves: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Outputs and residuals."""
        self._held.place([leaves[at] for at in self._held.leaves])
        arrays = {name: array_of(leaves[at]) for at, name in self._read}
        if self._draws:
            arrays[SEED] = torch.randint(-(2**63), 2**63 - 1, (2,)).numpy()
        found = self._forward.run(arrays)
        outputs = [torch.from_numpy(found[name]) for name in self.outputs]
        return outputs, [torch.from_numpy(found[name]) for name in self._residuals]

    def backward(
        self, saved: Sequence[Tensor], cotangents: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """The gradient of each leaf."""
        assert self._backward is not None
        names = (*(name for _, name in (*self.saved_leaves, *self.saved_outputs)), *self._residuals)
        count = len(self.held_back.leaves)
        self.held_back.place(saved[:count])
        arrays = {name: array_of(tensor) for name, tensor in zip(names, saved[count:], strict=True)}
        for at, name in self.cotangents:
            arrays[name] = array_of(cotangents[at])
        found = self._backward.run(arrays)
        return [None if name is None else torch.from_numpy(found[name]) for name in self._gradients]


class Held:
    """The variables of a program, in the memory of parameters and buffers."""

    def __init__(self, program: NativeExecutable, names: Sequence[str]) -> None:
        self._program = program
        found = [(at, name) for at, name in enumerate(names) if name in program.variables]
        self.leaves = [at for at, _ in found]
        """The indices of these tensors among the leaves."""
        self._names = [name for _, name in found]
        self._places = [0] * len(found)
        self._copies: dict[int, Tensor] = {}

    def place(self, tensors: Sequence[Tensor]) -> None:
        """Lets the program read these tensors, or copies of tensors that are not contiguous."""
        for at, tensor in enumerate(tensors):
            place = tensor.data_ptr()
            if place == self._places[at] and at not in self._copies:
                continue
            self._places[at] = place
            if tensor.is_contiguous():
                self._copies.pop(at, None)
            else:
                self._copies[at] = tensor = tensor.detach().contiguous()
            self._program.place(self._names[at], array_of(tensor))


def array_of(tensor: Tensor) -> Array:
    """The elements of a tensor, not copied."""
    found: Array = tensor.detach().numpy()
    return found


class Differentiated(torch.autograd.Function):
    """A step as an operation of autograd."""

    @staticmethod
    def forward(ctx: Any, step: Step, *leaves: Tensor) -> tuple[Tensor, ...]:
        outputs, residuals = step.forward(leaves)
        differentiable = {at for at, _ in step.cotangents}
        ctx.mark_non_differentiable(
            *(tensor for at, tensor in enumerate(outputs) if at not in differentiable)
        )
        ctx.save_for_backward(
            *(leaves[at] for at in step.held_back.leaves),
            *(leaves[at] for at, _ in step.saved_leaves),
            *(outputs[at] for at, _ in step.saved_outputs),
            *residuals,
        )
        ctx.step = step
        return tuple(outputs)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.step.backward(ctx.saved_tensors, cotangents)
