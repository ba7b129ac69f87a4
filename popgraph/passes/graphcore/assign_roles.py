"""Decides which tensors of a graph the caller passes, and which it holds between calls."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.dialects.program import BlobAttr, ConstantOp, VariableOp, WeightStore
from popgraph.dialects.program.ops import names_attribute
from popgraph.passes.analysis.graph import only_graph


def assign_roles(
    module: ModuleOp, weights: WeightStore, *, variables: Collection[str], inputs: Collection[str]
) -> None:
    """
    Turns inputs into `variables`, some variables into `inputs`, and the others into constants.

    The caller holds the memory of these variables, and passes inputs in each call: their first
    values do not matter, and updates are dropped.
    """
    graph = only_graph(module)
    for update in list(graph.updates()):
        Rewriter.erase_op(update)
    given = graph.inputs
    for op in list(graph.variables()):
        name = op.variable.text
        if name in inputs:
            given[name] = graph.block.insert_arg(op.result.type, len(graph.block.args))
            _replace(op.result, given[name])
        else:
            constant = ConstantOp(op.literal)
            Rewriter.insert_op(constant, InsertPoint.before(op))
            _replace(op.result, constant.result)
        Rewriter.erase_op(op)
    for name in variables:
        argument = given.pop(name)
        made = VariableOp(name, _zeros(weights, argument))
        Rewriter.insert_op(made, InsertPoint.at_start(graph.block))
        _replace(argument, made.result)
        graph.block.erase_arg(argument)  # type: ignore[arg-type]
    graph.properties["input_names"] = names_attribute([*given])


def _replace(value: SSAValue, other: SSAValue) -> None:
    other.name_hint = other.name_hint or value.name_hint
    value.replace_all_uses_with(other)


def _zeros(weights: WeightStore, like: SSAValue) -> BlobAttr:
    """A literal of zeros, which takes no memory before a program allocates it."""
    shape, dtype = shape_of(like), dtype_of(like).numpy
    return weights.defer(f"zeros {dtype} {shape}", shape, dtype, lambda: np.zeros(shape, dtype))
