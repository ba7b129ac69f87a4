"""Compiles a captured graph: one program for inference, or a forward and a backward program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.base import NativeExecutable
from popgraph.builder.pgraph import add_loss
from popgraph.compiler import build, for_this_machine, load, lower
from popgraph.dialects.element_types import from_ir
from popgraph.dialects.graphcore.base import tensor_of
from popgraph.dialects.graphcore.random import SEED
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import LOWERING, Compilation
from popgraph.passes.graphcore.assign_roles import assign_roles
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.optimizer_spec import SGD
from popgraph.passes.options import GRADIENT, Options, Training
from popgraph.passes.structured.fusion.fuse_elementwise import FuseElementwise
from popgraph.passes.structured.fusion.fuse_epilogue import FuseEpilogue
from popgraph.passes.structured.layout.assign_layouts import AssignLayouts
from popgraph.passes.structured.split_backward import split_backward
from popgraph.torch.capture import Captured

COTANGENT = "Cotangent___"
"""Prefix of the input of the backward program with the gradient of an output."""


@dataclass(frozen=True)
class Pair:
    """The programs of a forward and a backward pass."""

    forward: NativeExecutable
    backward: NativeExecutable | None
    """None if no leaf has a gradient, or none is requested."""


def inference(captured: Captured, threads: int) -> Pair:
    """The program of the forward pass alone."""
    module, compilation = load(captured.model)
    lower(module, compilation, level="graphcore", until=OnnxToGraphcore.name)
    _simplify(module, compilation, captured)
    return Pair(_built(module, compilation, threads), None)


def training(captured: Captured, wrt: Sequence[str], threads: int) -> Pair:
    """
    The programs of the forward pass and of the gradients with respect to the leaves in `wrt`.

    Both come from one graph, the gradients of sum(y * dy) over the outputs y.
    """
    module, compilation = load(captured.model)
    graph = model_of(module).graph
    # The captured graph has only tensors of known types.
    types = {
        name: tensor_of(value)
        for name, value in zip(graph.output_names, graph.yielded, strict=True)
    }
    returned = {captured.outputs[one.output] for one in captured.results if one.output is not None}
    names = {
        COTANGENT + name: type_
        for name, type_ in types.items()
        if name in returned and from_ir(type_.element_type).is_float
    }
    if not names:
        return inference(captured, threads)
    terms = [f"ReduceSum(`{one.removeprefix(COTANGENT)}` * `{one}`)" for one in names]
    module, loss = add_loss(module, compilation.weights, " + ".join(terms), names)
    task = Training(
        loss, SGD(), frozen=tuple(weights_by_name(model_of(module).graph)), tracked=tuple(wrt)
    )
    options = Options(training=task)
    lower(module, compilation, options, level="graphcore", until=Autodiff.name)
    _simplify(module, compilation, captured)
    # Once layouts are assigned, so that both halves agree on the layout of the residuals.
    target = for_this_machine(Options(), threads)
    lower(module, compilation, target, level="structured", until=AssignLayouts.name)
    halves = split_backward(module, names)
    return Pair(
        _built(halves.forward, compilation, threads, DONE),
        _built(halves.backward, compilation, threads, DONE),
    )


DONE = frozenset({FuseElementwise.name, FuseEpilogue.name, AssignLayouts.name})
"""Passes that have run on the whole graph. In its halves, they would fuse what both of them read:
LeNet's forward pass would take 18 times as long."""


def _built(
    module: ModuleOp, compilation: Compilation, threads: int, done: frozenset[str] = frozenset()
) -> NativeExecutable:
    made = build(module, compilation, Options(disabled=done), threads=threads)
    assert isinstance(made, NativeExecutable), "the default backend is native"
    return made


def _simplify(module: ModuleOp, compilation: Compilation, captured: Captured) -> None:
    """Keeps the outputs and gradients; parameters are variables, the random state is an input."""
    with LOWERING:
        graph = only_graph(module)
        outputs = graph.outputs
        gradients = [name for name in outputs if name.startswith(GRADIENT)]
        kept = dict.fromkeys((*captured.outputs, *gradients))
        set_outputs(graph, {name: outputs[name] for name in kept})
        held = [leaf.name for leaf in captured.leaves if leaf.target]
        assign_roles(module, compilation.weights, variables=held, inputs={SEED})
    lower(module, compilation, level="graphcore", until=EliminateDeadCode.name)
