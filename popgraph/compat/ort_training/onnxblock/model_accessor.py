"""The model that blocks edit: `base`, `empty_base`, and the accessor that both yield."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike

import onnx
from onnx import ModelProto

from popgraph.compat.ort_training.errors import WrongCall
from popgraph.compat.ort_training.graphs import reserve_names


class ModelAccessor:
    """Holds the model that blocks edit."""

    def __init__(self, model: ModelProto, model_path: str | None = None) -> None:
        self.model = model
        self._path = model_path

    @property
    def path(self) -> str:
        """The file of the base model; WrongCall if it has none."""
        if self._path is None:
            raise WrongCall(
                "the base model was not read from a file", hint="onnxblock.base(model, path)"
            )
        return self._path

    @property
    def has_path(self) -> bool:
        """Whether the base model has a file."""
        return self._path is not None


_CURRENT: ContextVar[ModelAccessor | None] = ContextVar("popgraph_ort_training_model", default=None)


def current() -> ModelAccessor:
    """The accessor of the surrounding `with`; WrongCall outside."""
    found = _CURRENT.get()
    if found is None:
        raise WrongCall(
            "a block is called without a model to edit",
            hint="call it in `with onnxblock.base(model):`, or in `with onnxblock.empty_base():`",
        )
    return found


@contextmanager
def base(model: ModelProto, model_path: str | None = None) -> Iterator[ModelAccessor]:
    """Lets the blocks inside edit a copy of a model: `with onnxblock.base(model) as accessor:`."""
    if not isinstance(model, ModelProto):
        raise WrongCall(
            f"the base model is a {type(model).__name__}, not an onnx.ModelProto",
            hint="onnxblock.empty_base() starts with an empty model",
        )
    copy = ModelProto()
    copy.CopyFrom(model)
    reserve_names(copy)
    with _editing(ModelAccessor(copy, model_path)) as accessor:
        yield accessor


@contextmanager
def empty_base(opset_version: int | None = None) -> Iterator[ModelAccessor]:
    """Lets the blocks inside edit an empty model of an operator set, by default onnx's latest."""
    model = ModelProto(ir_version=onnx.IR_VERSION, producer_name="popgraph")
    model.graph.name = "graph"
    version = opset_version or onnx.defs.onnx_opset_version()
    model.opset_import.append(onnx.helper.make_opsetid("", version))
    with _editing(ModelAccessor(model)) as accessor:
        yield accessor


@contextmanager
def _editing(accessor: ModelAccessor) -> Iterator[ModelAccessor]:
    if _CURRENT.get() is not None:
        raise WrongCall(
            "Base onnx model already exists. Cannot create multiple ModelAccessors.",
            hint="leave the outer `with onnxblock.base(...)` first",
        )
    token = _CURRENT.set(accessor)
    try:
        yield accessor
    finally:
        _CURRENT.reset(token)


def custom_op_library(custom_op_library_path: str | PathLike[str]) -> None:
    """Always refused: PopGraph calls no operators of shared libraries."""
    raise WrongCall(
        "operators of a shared library have no gradient here",
        f"custom_op_library {str(custom_op_library_path)!r}",
        "write the operator as a formula of other operators (docs/extend.md)",
    )
