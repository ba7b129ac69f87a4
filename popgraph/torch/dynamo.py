"""The backend `popgraph` of `torch.compile`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import getitem
from typing import Any

import torch
from torch import nn
from torch.fx.passes.split_module import split_module

from popgraph.support.errors import PopgraphError, RunError
from popgraph.support.names import closest
from popgraph.support.warnings import PopgraphWarning
from popgraph.torch.capture import place_of
from popgraph.torch.dispatch import Dispatcher


class EagerWarning(PopgraphWarning):
    """A part of a compiled function is computed by PyTorch."""


def backend(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any
) -> Callable[..., Any]:
    """
    Compiles a graph of `torch.compile(module, backend="popgraph", options={"threads": 2})`.

    A graph that PopGraph cannot compute runs in PyTorch, with an `EagerWarning` that names the
    reason and the line. `options={"fallback": False}` makes it an error.
    """
    chosen = {**options.pop("options", {}), **options}
    unknown = sorted(chosen.keys() - {"threads", "fallback", "mode"})
    if unknown:
        close = closest(unknown[0], ["threads", "fallback"])
        raise RunError(
            f"the backend popgraph has no option {unknown[0]!r}",
            "torch.compile(options=...)",
            f"did you mean {close!r}?" if close else "its options are 'threads' and 'fallback'",
        )
    return Part(graph, chosen.get("threads"), chosen.get("fallback", True))


class Part(nn.Module):
    """A graph of a compiled function: computed here, by PyTorch, or in parts by both."""

    def __init__(self, graph: torch.fx.GraphModule, threads: int | None, fallback: bool) -> None:
        super().__init__()
        self._graph, self._threads, self._fallback = graph, threads, fallback
        self._dispatcher = Dispatcher(graph, threads)
        self._other: Callable[..., Any] | None = None
        """Computes the graph instead, if one of its operators is not supported."""

    def forward(self, *args: Any) -> Any:
        if self._other is not None:
            return self._other(*args)
        try:
            compiled = self._dispatcher.compiled(args, {})
        except PopgraphError as error:
            if not self._fallback:
                raise
            self._other = self._divided(error)
            return self._other(*args)
        return compiled(args)

    def _divided(self, error: PopgraphError) -> Callable[..., Any]:
        """The graph with the operators that caused the error left to PyTorch."""
        calls = [node for node in self._graph.graph.nodes if node.op.startswith("call")]
        refused = {node for node in calls if _is_refused(node, error.where)}
        if any(node.target is torch._C._set_grad_enabled for node in calls):
            refused = set(calls)
        _warn(error, [one for one in calls if one in refused] or calls, len(calls))
        if not refused or len(refused) == len(calls):
            return self._graph.forward  # type: ignore[no-any-return]
        numbers = dict[torch.fx.Node, int]()
        for before, node in pairwise([None, *calls]):
            same = before is None or (before in refused) == (node in refused)
            numbers[node] = 0 if before is None else numbers[before] + (not same)
        for node in calls:
            if node.target is getitem:  # Only tensors pass from part to part.
                numbers[node] = numbers[node.args[0]]
        divided = split_module(self._graph, None, lambda node: numbers.get(node, 0))
        good = {numbers[node] for node in calls if node not in refused}
        for number in good:
            inner = getattr(divided, f"submod_{number}", None)
            size = sum(number == numbers[node] for node in calls)
            if isinstance(inner, torch.fx.GraphModule) and size >= LEAST:
                setattr(divided, f"submod_{number}", Part(inner, self._threads, True))
        found: Callable[..., Any] = divided.forward
        return found


LEAST = 3
"""Operators of a part that is worth programs of its own."""


def _is_refused(node: torch.fx.Node, where: str) -> bool:
    """Whether an operator caused an error: it has a body of its own, or is on this line."""
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return True
    return bool(where) and place_of(node.meta.get("stack_trace") or "") == where


def _warn(error: PopgraphError, refused: Sequence[torch.fx.Node], total: int) -> None:
    traces = (node.meta.get("stack_trace") or "" for node in refused)
    place = error.where or next((found for trace in traces if (found := place_of(trace))), "")
    warnings.warn(
        f"PyTorch computes {len(refused)} of {total} operators of a compiled function: {error.what}"
        + (f"\n  at: {place}" if place else "")
        + (f"\n  try: {error.hint}" if error.hint else ""),
        EagerWarning,
        stacklevel=4,
    )
