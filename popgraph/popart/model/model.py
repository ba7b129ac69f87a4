"""The ONNX graph that a session runs: a model with static shapes and its losses attached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp, NameLoc, TensorType
from xdsl.ir import SSAValue

from popgraph.builder.onnx.external import DataFolders
from popgraph.builder.onnx.external_weights import data_folders
from popgraph.builder.onnx.stacked_weights import StackedModel
from popgraph.builder.opset.enums import ExchangeStrategy, RecomputeType, TileSet
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.compiler import load
from popgraph.dialects import element_types
from popgraph.dialects.levels import ONNX, level_of
from popgraph.dialects.onnx import Graph, Initializer, OnnxOp, model_of
from popgraph.dialects.onnx.annotations import RECOMPUTE, all_attributes, set_attribute
from popgraph.dialects.onnx.attributeproto import from_python
from popgraph.dialects.onnx.op import to_python
from popgraph.dialects.onnx.schemas import UnknownOperator
from popgraph.dialects.onnx.types import dims, static_shape, tensor_type
from popgraph.dialects.program import WeightStore
from popgraph.operators.collectives import is_collective
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.infer_shapes import specialise
from popgraph.popart.api.builder import Builder
from popgraph.popart.api.dataflow import InputShapeInfo
from popgraph.popart.api.graph_transformer import reading_model
from popgraph.popart.api.losses import Loss, append_losses, final_loss
from popgraph.popart.api.names import RESERVED_PREFIXES
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.refusals import REFUSED, check_notes
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.api.variable_settings import (
    broadcast_inputs,
    exchange_strategies,
    input_tiles,
)
from popgraph.popart.exceptions import popart_exception, popart_unsupported_exception
from popgraph.popart.model.limits import (
    LAST_OPSET,
    check_calls,
    check_classes,
    check_limits,
    refusal_while_read,
)
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError
from popgraph.training.merged_weights import separate_weights

Source = Any
"""A path, ONNX bytes, a ModelProto, a Builder or an IR module."""


_PLACES = {("", "ArgMax"), ("", "ArgMin")}


class SessionModel:
    """
    An ONNX graph with static shapes, and queries about its tensors.

    `added` are the tensors of losses given to the session, which are not part of the model.
    """

    def __init__(
        self,
        module: ModuleOp,
        weights: WeightStore,
        shapes: InputShapeInfo,
        losses: Sequence[str | Loss],
    ) -> None:
        """`module` is consumed; `weights` is not modified."""
        builder = Builder.of(module, WeightStore(weights))
        self.final_loss: str | None = None
        self.added = frozenset(self._fix_inputs(builder, shapes))
        if losses:
            given = frozenset(builder.getValueTensorIds())
            self.final_loss = final_loss(builder, losses, append_losses(builder, losses))
            self.added |= frozenset(builder.getValueTensorIds()) - given
        self.module: ModuleOp = builder.module()
        self.weights: WeightStore = builder.weights
        self._check_names()
        opset = model_of(self.module).opset_versions.get("", LAST_OPSET)
        self.is_of_popart = opset <= LAST_OPSET
        check_classes(self.graph, model_of(self.module).functions)
        check_calls(self.graph)
        check_limits(self.graph, self.weights, opset)

    def _fix_inputs(self, builder: Builder, shapes: InputShapeInfo) -> list[str]:
        """
        Sets the shapes of dynamic inputs from `shapes`, and adds inputs that only losses read.
        """
        added = [id for id in shapes.ids() if id not in builder.getInputTensorIds()]
        for id in added:
            builder.addInputTensor(shapes.get(id), id)
        given = {}
        for id in builder.getInputTensorIds():
            if builder.isInitializer(id):
                continue
            type_ = builder.type_of(id)
            if shapes.has(id):
                info = shapes.get(id)
                given[id] = tensor_type(info.row, info.shape())
            elif static_shape(type_) is None:
                raise _unknown_shape(id, dims(type_))
        if any(static_shape(builder.type_of(id)) is None for id in given):
            module = builder.module()
            specialise(module, given, builder.weights)
            builder.take(module)
        return added

    @property
    def graph(self) -> Graph:
        return model_of(self.module).graph

    def values(self) -> Iterator[tuple[str, SSAValue]]:
        """All named tensors."""
        yield from zip(self.graph.input_names, self.graph.block.args, strict=True)
        for op in self.graph.block.ops:
            if isinstance(op, Initializer):
                yield op.value_name.text, op.result
            elif isinstance(op, OnnxOp):
                for name, value in zip(op.output_names, op.output_values(), strict=False):
                    if name and value is not None:
                        yield name, value

    def infos(self) -> dict[str, TensorInfo]:
        """Element types and shapes of all tensors with a static shape."""
        found = {}
        for name, value in self.values():
            shape = static_shape(value.type)
            if shape is not None and isinstance(value.type, TensorType):
                if not element_types.is_number(value.type.element_type):
                    raise popart_exception(f"{name} holds no numbers", "the model of a session")
                row = element_types.from_ir(value.type.element_type)
                found[name] = TensorInfo(row.popart, shape)
        return found

    def initializers(self) -> dict[str, Array]:
        """The weights in the original model."""
        return {op.value_name.text: op.array(self.weights) for op in self.graph.initializers}

    @property
    def places(self) -> set[str]:
        """The results of ArgMax and ArgMin, whose anchors are INT32 in PopART."""
        nodes = (op for op in self.graph.nodes if (op.domain, op.op_type) in _PLACES)
        return {name for op in nodes for name in op.output_names}

    @property
    def weight_names(self) -> set[str]:
        return {op.value_name.text for op in self.graph.initializers}

    def compilation(self) -> Compilation:
        return Compilation(self.weights)

    def _check_names(self) -> None:
        """Refuses names that collide with PopART's reserved prefixes."""
        weights, graph = self.weight_names, self.graph
        outer = {*graph.input_names, *graph.output_names}
        for name, _ in self.values():
            for prefix in RESERVED_PREFIXES.values():
                clashes = prefix in name if name in outer else name.startswith(prefix)
                if clashes and name not in weights:
                    raise popart_exception(
                        f"Provided tensor {name} has an invalid name: clash with reserved "
                        f"prefix {prefix}"
                    )

    @property
    def broadcast_inputs(self) -> frozenset[str]:
        """The inputs that are broadcast to all replicas."""
        return broadcast_inputs(self._notes)

    @property
    def exchange_strategies(self) -> dict[str, ExchangeStrategy]:
        """The exchange strategy of inputs other than just-in-time."""
        return exchange_strategies(self._notes)

    @property
    def input_tiles(self) -> dict[str, TileSet]:
        """The tile set of inputs other than compute tiles."""
        return input_tiles(self._notes)

    @property
    def _notes(self) -> list[tuple[str, str]]:
        metadata = model_of(self.module).metadata
        return [] if metadata is None else metadata.entries

    @property
    def has_collectives(self) -> bool:
        """Whether any node, including those in subgraphs, is a collective."""
        nodes = (op for op in self.module.walk() if isinstance(op, OnnxOp))
        return any(is_collective(op) for op in nodes)

    def apply_options(self, options: SessionOptions, *, group_variances: bool) -> None:
        """Writes semantics that depend on options into node attributes."""
        notes = {
            "strided": options.groupNormStridedChannelGrouping,
            "variances": group_variances,
        }
        for op in self.module.walk():
            if isinstance(op, OnnxOp) and (op.domain, op.op_type) == (DOMAIN, "GroupNormalization"):
                for name in filter(notes.get, notes):
                    set_attribute(op, name, from_python(name, 1, None, self.weights), self.weights)

    @property
    def recomputed(self) -> tuple[str, ...]:
        """The nodes that the user marks for recomputation."""
        return tuple(
            op.location.desc.data
            for op in self.graph.nodes
            if isinstance(op.location, NameLoc) and self.is_recomputed(op)
        )

    def is_recomputed(self, op: OnnxOp) -> bool:
        """Whether the user marks a node for recomputation; a checkpoint is not recomputed."""
        note = all_attributes(op, self.weights).get(RECOMPUTE)
        return note is not None and to_python(note) == int(RecomputeType.Recompute)

    def check_loss(self) -> None:
        """Refuses a loss that is missing, or is not a scalar."""
        infos = self.infos()
        if self.final_loss is not None and self.final_loss not in dict(self.values()):
            raise popart_exception(
                f"Could not find loss tensor '{self.final_loss}' in main graph tensors",
                hint="give the id that a loss of the builder returned",
            )
        loss = infos.get(self.final_loss or "")
        if loss is not None and loss.nelms() != 1:
            raise popart_exception(f"Loss tensor, '{self.final_loss}', must be a scalar tensor")


def open_model(source: Source, folders: DataFolders | None = None) -> tuple[ModuleOp, WeightStore]:
    """
    Parses a model into a module and weights; a failure raises PopART's error.

    Paths of external weights are relative to the working directory; `folders` receives their
    locations.
    """
    with reading_model(source):
        if isinstance(source, bytes) and REFUSED.encode() in source:
            check_notes(StackedModel(source).notes)
        try:
            module, compilation = load(source, folders=folders or data_folders())
        except TypeMismatchError as error:
            if isinstance(error.node, OnnxOp):
                raise (refusal_while_read(error.node) or error) from error
            raise
        except UnknownOperator as error:
            raise popart_unsupported_exception(
                f"No class for {error.key}:0", error.where, error.hint
            ) from error
    if (level := level_of(module)) != ONNX:
        raise popart_exception(
            f"a session takes a model as it was written, not a module of the {level} level",
            hint="popgraph.compile runs modules of any level",
        )
    separate_weights(module, compilation.weights)
    return module, compilation.weights


def _unknown_shape(id: str, shape: Sequence[object] | None) -> popart_exception:
    if shape is None:
        said = f"Could not find tensor {id} in InputShapeInfo, but no shape is specified in the "
        return popart_exception(f"{said}onnx model", hint=_ADD_A_SHAPE.format(id))
    shown = [-1 if dim is None else dim for dim in shape]
    unknown = next(dim for dim in shown if isinstance(dim, str) or dim == -1)
    listed = ", ".join(map(str, shown))
    return popart_exception(
        f"Input tensor '{id}' must be specified in InputShapeInfo, as it has shape [{listed}], "
        f"which uses an unknown value '{unknown}'.",
        hint=_ADD_A_SHAPE.format(id),
    )


_ADD_A_SHAPE = 'shapes = InputShapeInfo(); shapes.add("{}", TensorInfo("FLOAT", [...]))'
