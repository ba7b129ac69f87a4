"""Captures the forward pass of a module as an ONNX graph of its inputs, parameters and buffers."""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from itertools import chain
from operator import getitem
from pathlib import Path
from typing import Any
from unittest.mock import patch

import onnx_ir
import torch
from torch import Tensor, nn
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from popgraph.support.errors import PopgraphError, UnsupportedError
from popgraph.torch.translations import STEP, forms_of

DTYPES = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.bool, torch.uint8}
    | {torch.int8, torch.int16, torch.int32, torch.int64}
)
"""The element types of tensors that NumPy and our programs share."""


@dataclass(frozen=True)
class Leaf:
    """A tensor that the graph reads."""

    name: str
    """Its input in the graph."""
    target: str
    """The qualified name of a parameter, buffer or constant; empty for an argument."""
    position: int
    """The index of an argument among the leaves of all arguments."""


@dataclass(frozen=True)
class Result:
    """A leaf of the returned value."""

    output: int | None = None
    """The index of the output of the graph; None if the graph does not compute it."""
    leaf: int | None = None
    """The index of the leaf that is returned itself."""
    constant: object = None


@dataclass(frozen=True)
class Captured:
    """A graph without side effects that computes a forward pass."""

    model: Any
    """The graph as an ONNX model, whose inputs are the leaves."""
    leaves: tuple[Leaf, ...]
    outputs: tuple[str, ...]
    results: tuple[Result, ...]
    """The leaves of the returned value."""
    written: tuple[tuple[int, int], ...]
    """Leaves that the forward pass changes in place, each with the output of its next value."""
    out_spec: Any
    """The structure of the returned value."""


def capture(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Captured:
    """The forward pass of `module` for arguments like these; errors as `exported_program`."""
    functional = exported_program(module, args, kwargs)
    graph_module = functional.graph_module
    every, constants = _leaves(functional)
    leaves = tuple(leaf for leaf in every if leaf.name not in constants)
    results, written = _results(functional, leaves)
    graph_module.recompile()
    examples = tuple(torch.empty(one.shape, dtype=one.dtype) for one in _tensors(graph_module))
    program = to_onnx(graph_module, examples, STEP)
    graph = program.model.graph
    hold(graph, constants)
    program.optimize()
    names = [value.name for value in graph.inputs]
    assert names == [leaf.name for leaf in leaves], "the exporter keeps inputs"
    return Captured(
        program.model_proto,
        leaves,
        tuple(str(value.name) for value in graph.outputs),
        tuple(results),
        tuple(written),
        functional.call_spec.out_spec,
    )


def exported_program(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any = None,
) -> torch.export.ExportedProgram:
    """
    The forward pass as a graph of ATen operators that changes no tensor in place.

    UnsupportedError for modules that no graph represents, with the line of the user's code.
    """
    _check_tensors(module, args, kwargs)
    with quiet():
        exported = _exported(module, args, dict(kwargs), dynamic_shapes)
        _detach_without_grad(exported.graph_module)
        _check_operators(exported.graph_module)
        try:
            return exported.run_decompositions(_decompositions(exported.graph_module))
        except Exception as error:
            raise _refusal("PyTorch cannot decompose the graph", error) from error


def _decompositions(graph_module: torch.fx.GraphModule) -> dict[Any, Callable[..., Any]]:
    """Operators to decompose because the exporter would drop a part of their meaning."""
    aten, found = torch.ops.aten, set[Any]()
    for node in graph_module.graph.nodes:
        if node.target is aten.instance_norm.default and node.args[3] is not None and node.args[5]:
            found.add(node.target)  # the updates of running statistics
        if node.target is aten.cross_entropy_loss.default and any(node.args[5:6]):
            found.add(node.target)  # the smoothing of labels
    known = torch.export.default_decompositions() if found else {}
    return {operator: known[operator] for operator in found}


def to_onnx(
    functional: torch.fx.GraphModule | torch.export.ExportedProgram,
    examples: tuple[Tensor, ...],
    forms: Mapping[Any, Callable[..., Any]],
) -> torch.onnx.ONNXProgram:
    """The graph in ONNX, not yet simplified."""
    try:
        with quiet():
            program = torch.onnx.export(
                functional,
                examples,
                dynamo=True,
                verbose=False,
                optimize=False,
                custom_translation_table=dict(forms_of(functional.graph, forms)),
            )
    except Exception as error:
        refusal = _refusal("PyTorch's exporter cannot convert the graph to ONNX", error)
        refusal.where = refusal.where or _place_in(functional.graph, str(error.__cause__ or error))
        raise refusal from error
    assert program is not None
    return program


def _place_in(graph: torch.fx.Graph, text: str) -> str:
    """The line of the first node whose operator a message of the exporter names."""
    named = set(re.findall(r"aten\.\w+", text))
    traces = (
        node.meta.get("stack_trace") or ""
        for node in graph.nodes
        if (name := str(node.target).rpartition(".")[0]).startswith("aten.")
        and any(one.startswith(name) for one in named)  # linalg_inv is linalg_inv_ex later
    )
    return next((found for trace in traces if (found := place_of(trace))), "")


def _check_tensors(module: nn.Module, args: Any, kwargs: Any) -> None:
    given = chain(torch.utils._pytree.tree_leaves((args, kwargs)), module.state_dict().values())
    for value in given:
        if isinstance(value, Tensor):
            check_tensor(value)


def check_tensor(value: Tensor) -> None:
    """UnsupportedError unless our programs can share the memory of a tensor."""
    if value.device.type != "cpu":
        raise UnsupportedError(
            f"a tensor is on the device {str(value.device)!r}, and PopGraph computes on the CPU",
            hint="module.cpu(), tensor.cpu()",
        )
    if value.layout != torch.strided or value.dtype not in DTYPES:
        kind = value.dtype if value.layout == torch.strided else value.layout
        raise UnsupportedError(
            f"a tensor of {kind} has no form in PopGraph's programs",
            hint="convert it: tensor.float(), module.float() or tensor.to_dense()",
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Suppresses remarks of the exporter about itself."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _exported(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    def refuse(cls: Any, /, *_: object, **__: object) -> None:
        name = "" if cls.__module__.startswith("torch.") else f" {cls.__name__}"
        raise UnsupportedError(
            f"the torch.autograd.Function{name} has a backward of its own, which is not captured",
            hint="write it with operators of PyTorch, or compile only the modules around it",
        )

    try:
        with (
            torch.enable_grad(),
            patch.object(torch.autograd.Function, "apply", classmethod(refuse)),
        ):
            return torch.export.export(
                module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False
            )
    except UnsupportedError:
        raise
    except Exception as error:
        raise _refusal("PyTorch cannot export the module as one graph", error) from error


FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in .*\n\s*(?P<code>.*)')


def _refusal(what: str, error: BaseException) -> PopgraphError:
    """The error of an exporter as one of ours, with the last line of code that is not PyTorch's."""
    text = re.sub(r"\x1b\[\d+m", "", str(error))
    hint = (
        "check that the module itself takes these arguments; torch.compile(module, "
        "backend='popgraph') leaves unsupported lines to PyTorch"
    )
    if "data-dependent" in text:
        what, first = "Python branches on the values of a tensor, or computes with them", ""
        hint = (
            "use torch.where, or torch.compile(module, backend='popgraph'), which leaves such "
            "lines to PyTorch"
        )
    else:
        first = f": {reason_of(error)}"
    return UnsupportedError(f"{what}{first}", place_of(text), hint)


def reason_of(error: BaseException) -> str:
    """The first line of the innermost error."""
    while error.__cause__ is not None and str(error.__cause__):
        error = error.__cause__
    lines = (line.strip() for line in re.sub(r"\x1b\[\d+m", "", str(error)).splitlines())
    return next(filter(None, lines), type(error).__name__)[:300]


def place_of(trace: str) -> str:
    """The innermost line of a stack trace outside PyTorch: `net.py:12: y = f(x)`."""
    inside = str(Path(torch.__file__).parent)
    frames = [one for one in FRAME.finditer(trace) if not one["file"].startswith(inside)]
    if not frames:
        return ""
    last = frames[-1]
    return f"{Path(last['file']).name}:{last['line']}: {last['code'].strip()}"


def _detach_without_grad(graph_module: torch.fx.GraphModule) -> None:
    """Marks the results of `torch.no_grad()` regions as detached, before they are inlined."""
    wrapped = torch.ops.higher_order.wrap_with_set_grad_enabled
    for node in list(graph_module.graph.nodes):
        if node.target is not wrapped or node.args[0]:
            continue
        for result in [one for one in node.users if one.target is getitem]:
            with graph_module.graph.inserting_after(result):
                detached = graph_module.graph.call_function(
                    torch.ops.aten.detach.default, (result,)
                )
            result.replace_all_uses_with(
                detached, delete_user_cb=lambda user, mine=detached: user is not mine
            )
            detached.meta.update(result.meta)
    graph_module.recompile()


def _check_operators(graph_module: torch.fx.GraphModule) -> None:
    """UnsupportedError for operators that the exporter would convert to something else."""
    for node in graph_module.graph.nodes:
        dropped = DROPOUT_OF_LAYERS.get(str(node.target))
        if dropped and node.args[dropped] and node.args[dropped + 1]:
            raise UnsupportedError(
                f"dropout between recurrent layers in training ({node.target}) has no form in ONNX",
                place_of(node.meta.get("stack_trace") or ""),
                "stack layers of num_layers=1 with nn.Dropout between them",
            )
        if node.target is torch.ops.aten.embedding.default and any(node.args[3:5]):
            raise UnsupportedError(
                "an embedding with sparse gradients, or with gradients scaled by frequency",
                place_of(node.meta.get("stack_trace") or ""),
                "nn.Embedding(..., sparse=False, scale_grad_by_freq=False)",
            )


DROPOUT_OF_LAYERS = {
    "aten.lstm.input": 5,
    "aten.gru.input": 5,
    "aten.rnn_tanh.input": 5,
    "aten.rnn_relu.input": 5,
}
"""The argument with the dropout ratio of recurrent layers; the next one is `train`."""


def _leaves(
    functional: torch.export.ExportedProgram,
) -> tuple[tuple[Leaf, ...], dict[str, Tensor]]:
    """
    The tensors that the graph reads, and by name the constants among them.

    Drops other arguments from the graph.
    """
    graph_module = functional.graph_module
    nodes = {node.name: node for node in graph_module.graph.nodes}
    leaves, constants, position = list[Leaf](), dict[str, Tensor](), 0
    for spec in functional.graph_signature.input_specs:
        node = nodes[spec.arg.name]
        if isinstance(spec.arg, TensorArgument):
            leaves.append(Leaf(spec.arg.name, spec.target or "", position))
        else:
            node.replace_all_uses_with(None)
            graph_module.graph.erase_node(node)
        position += spec.kind == InputKind.USER_INPUT
        if spec.kind == InputKind.CONSTANT_TENSOR:
            found = functional.constants[str(spec.target)]
            assert isinstance(found, Tensor)
            if found.requires_grad:
                raise UnsupportedError(
                    f"the tensor {spec.target!r} requires a gradient but is not a parameter",
                    hint="make it an nn.Parameter of the module, or an argument of forward",
                )
            constants[spec.arg.name] = found
    return tuple(leaves), constants


def hold(graph: Any, tensors: Mapping[str, Tensor]) -> None:
    """Turns inputs of an ONNX graph into initializers with these values."""
    for value in [one for one in graph.inputs if one.name in tensors]:
        graph.inputs.remove(value)
        array = tensors[value.name].detach().numpy()
        value.const_value = onnx_ir.tensor(array, name=value.name)
        graph.register_initializer(value)


def _tensors(graph_module: torch.fx.GraphModule) -> list[Tensor]:
    """The fake tensors of all inputs."""
    return [node.meta["val"] for node in graph_module.graph.nodes if node.op == "placeholder"]


def _results(
    functional: torch.export.ExportedProgram, leaves: Sequence[Leaf]
) -> tuple[list[Result], list[tuple[int, int]]]:
    """
    The leaves of the returned value, and the next values of leaves that are written.

    The graph then returns only the tensors that it computes, each of them once.
    """
    signature, graph = functional.graph_signature, functional.graph_module.graph
    end = next(node for node in graph.nodes if node.op == "output")
    numbers = {leaf.name: at for at, leaf in enumerate(leaves)}
    by_target = {leaf.target: at for at, leaf in enumerate(leaves) if leaf.target}
    computed, results, written = list[Any](), list[Result](), list[tuple[int, int]]()
    for node, spec in zip(end.args[0], signature.output_specs, strict=True):
        if not isinstance(spec.arg, TensorArgument):
            assert isinstance(spec.arg, ConstantArgument), f"{spec.arg} is computed by Python"
            results.append(Result(constant=spec.arg.value))
            continue
        if spec.kind == OutputKind.USER_OUTPUT and spec.arg.name in numbers:
            results.append(Result(leaf=numbers[spec.arg.name]))
            continue
        if node not in computed:
            computed.append(node)
        at = computed.index(node)
        if spec.kind == OutputKind.USER_OUTPUT:
            results.append(Result(output=at))
        elif spec.kind == OutputKind.USER_INPUT_MUTATION:
            written.append((numbers[str(spec.target)], at))
        else:
            written.append((by_target[str(spec.target)], at))
    end.args = (tuple(computed),)
    return results, written
