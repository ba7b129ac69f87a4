"""Compiles the forward pass of a module for each kind of arguments that it is called with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from popgraph.open_model import SPECIALISATIONS
from popgraph.support.errors import UnsupportedError
from popgraph.torch.capture import Captured, capture
from popgraph.torch.programs import inference, training
from popgraph.torch.step import Step

Kind = tuple[object, ...]
"""Everything about a call that a program depends on."""


@dataclass(frozen=True)
class Compiled:
    """A step, and the way from arguments to its leaves and from its outputs to results."""

    step: Step
    captured: Captured
    held: Sequence[tuple[Mapping[str, Any], str] | None]
    """The dict and the key of each parameter and buffer; None for arguments."""

    def __call__(self, given: Sequence[Any]) -> Any:
        leaves = [
            given[leaf.position] if place is None else place[0][place[1]]
            for leaf, place in zip(self.captured.leaves, self.held, strict=True)
        ]
        outputs = self.step(leaves)
        if self.captured.written:
            with torch.no_grad():
                for leaf, output in self.captured.written:
                    leaves[leaf].copy_(outputs[output])
        results = [
            outputs[one.output]
            if one.output is not None
            else leaves[one.leaf]
            if one.leaf is not None
            else one.constant
            for one in self.captured.results
        ]
        return pytree.tree_unflatten(results, self.captured.out_spec)


class Dispatcher:
    """
    Runs the forward pass of a module by programs, one for each kind of arguments.

    A kind is the structure of the arguments, the shapes and element types of their tensors, and the
    tensors that require gradients. `SPECIALISATIONS` kinds are kept, the least recently used is
    evicted.
    """

    def __init__(self, module: nn.Module, threads: int | None = None) -> None:
        self._module, self._threads = module, threads
        self._compiled: OrderedDict[Kind, Compiled] = OrderedDict()

    def clear(self) -> None:
        """Drops all programs, because the module has changed."""
        self._compiled.clear()

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], state: Kind = ()) -> Any:
        """The returned value; `state` is what programs depend on besides the arguments."""
        given = args if _are_tensors(args, kwargs) else pytree.tree_leaves((args, kwargs))
        return self.compiled(args, kwargs, state)(given)

    def compiled(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], state: Kind = ()
    ) -> Compiled:
        """The programs for these arguments."""
        if _are_tensors(args, kwargs):
            given, spec = args, None
        else:
            given, spec = pytree.tree_flatten((args, kwargs))
        if torch.is_autocast_enabled("cpu"):
            raise UnsupportedError(
                "torch.autocast is enabled, and programs keep the types of the module",
                hint="leave the autocast region, or convert the module: module.half()",
            )
        grad = torch.is_grad_enabled()
        kind = (spec, grad, state, *(_kind(one, grad) for one in given))
        found = self._compiled.get(kind)
        if found is None:
            found = self._compile(args, kwargs, given)
            self._compiled[kind] = found
            while len(self._compiled) > SPECIALISATIONS:
                self._compiled.popitem(last=False)
        elif len(self._compiled) > 1:
            self._compiled.move_to_end(kind)
        return found

    def _compile(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], given: Sequence[Any]
    ) -> Compiled:
        threads = self._threads or torch.get_num_threads()
        with torch.inference_mode(False):
            captured = capture(self._module, args, kwargs)
        held = [self._place(leaf.target) if leaf.target else None for leaf in captured.leaves]
        leaves = [
            given[leaf.position] if place is None else place[0][place[1]]
            for leaf, place in zip(captured.leaves, held, strict=True)
        ]
        wrt = [
            leaf.name
            for leaf, tensor in zip(captured.leaves, leaves, strict=True)
            if tensor is not None and tensor.requires_grad
        ]
        for at, _ in captured.written:
            leaf = captured.leaves[at]
            if leaf.name in wrt and torch.is_grad_enabled():
                raise UnsupportedError(
                    "the forward pass changes a tensor in place that requires a gradient",
                    leaf.target or leaf.name,
                    "work on a copy: tensor.clone()",
                )
        if torch.is_grad_enabled() and wrt:
            pair = training(captured, wrt, threads)
        else:
            pair = inference(captured, threads)
        return Compiled(Step(captured, pair), captured, held)

    def _place(self, target: str) -> tuple[Mapping[str, Any], str]:
        owner, _, name = target.rpartition(".")
        module = self._module.get_submodule(owner)
        return module._parameters if name in module._parameters else module._buffers, name


def _are_tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether the arguments are the leaves, as in most calls."""
    return not kwargs and all(isinstance(one, Tensor) for one in args)


def _kind(value: Any, grad: bool) -> object:
    if isinstance(value, Tensor):
        return value.shape, value.dtype, value.device, grad and value.requires_grad
    if type(value).__hash__ is None:
        raise UnsupportedError(
            f"an argument is of type {type(value).__name__}",
            hint="pass tensors, such as torch.from_numpy(array), and Python's constants",
        )
    return type(value), value
