"""PopART's `Builder`: builds onnx IR call by call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from html import escape
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType, UnrankedTensorType
from xdsl.ir import Attribute, SSAValue

from popgraph.builder import pgraph
from popgraph.builder.onnx.external import FileRange
from popgraph.builder.onnx.external_weights import data_folders, exported, save_externally
from popgraph.builder.onnx.read import import_model
from popgraph.builder.opset.arguments import overloaded, typed
from popgraph.builder.opset.enums import RecomputeType
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.builder.opset.graphcore_opset import AiGraphcoreOpset1
from popgraph.builder.source import ModelSource
from popgraph.dialects import element_types
from popgraph.dialects.onnx import Graph, OnnxOp
from popgraph.dialects.onnx.annotations import RECOMPUTE
from popgraph.dialects.onnx.types import UNKNOWN, dims, tensor_type
from popgraph.dialects.program import WeightStore
from popgraph.popart.api.annotations import Annotations, NameContextManager, NodeIds
from popgraph.popart.api.debugging import Json, being_written, new_id
from popgraph.popart.api.draft import Draft
from popgraph.popart.api.graph_transformer import reading_model
from popgraph.popart.api.names import Names
from popgraph.popart.api.onnx_nodes import popart_node
from popgraph.popart.api.opsets import (
    FIRST_OPSET,
    LAST_OPSET,
    AiOnnxMl,
    Opset,
    method_name,
    onnx_opset,
)
from popgraph.popart.api.settings import InputSettings
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.api.variable_settings import (
    REPLICATION,
    VariableSettings,
    groups_note,
    stream_notes,
)
from popgraph.popart.exceptions import as_popart_errors, popart_exception, writing
from popgraph.support.dtypes import BY_POPART
from popgraph.support.writing import write_file


@typed
class Builder(Annotations, ModelSource):
    """
    Builds an ONNX graph call by call; tensors are ids, which are strings.

        builder = Builder()
        x = builder.addInputTensor("FLOAT", [4, 8])
        w = builder.addInitializedInputTensor(np.ones((8, 2), np.float32))
        y = builder.aiOnnx.matmul([x, w])
        builder.addOutputTensor(y)

    The first use of `aiOnnx` (the newest opset), `aiOnnxOpset11` ... sets the opset of the model.
    `Builder(model)` extends an existing model: a path, bytes or a ModelProto.
    """

    DEFAULT_OPSET: ClassVar[int] = LAST_OPSET
    """The opset of `aiOnnx`, unless another one is chosen first."""

    _REFUSES_EARLY: ClassVar[bool] = True
    """
    Whether an operator with invalid operands fails in the call; otherwise a session rejects it.
    """

    def __init__(
        self,
        modelProtoOrFilename: str | bytes | Path | Any = None,
        opsets: Mapping[str, int] | None = None,
        builderCore: Builder | None = None,
    ) -> None:
        super().__init__()
        self._parent = builderCore
        self._version: int | None = None
        self._external: dict[str, FileRange] = {}
        self._debug_ids: dict[str, int] = {}
        """By tensor id, the number of the call that created it."""
        self.weights = WeightStore() if builderCore is None else builderCore.weights
        self._draft: Draft = (
            Draft.empty(self.weights, self._names(), self.DEFAULT_OPSET)
            if builderCore is None
            else builderCore._draft.inner()
        )
        self._draft.refuses_early = self._REFUSES_EARLY
        if opsets is not None:
            self._choose_opsets(opsets)
        if modelProtoOrFilename is not None:
            folders = data_folders()
            with reading_model(modelProtoOrFilename):
                self.take(import_model(modelProtoOrFilename, self.weights, folders=folders))
            self._external = folders.found

    @classmethod
    def of(cls, module: ModuleOp, weights: WeightStore) -> Builder:
        """A builder that continues with a module, which it takes over together with its weights."""
        builder = cls()
        builder.weights = weights
        builder.take(module)
        return builder

    def _names(self) -> Names:
        """The naming scheme of a new graph."""
        return Names()

    # operator sets

    def _choose_opsets(self, opsets: Mapping[str, int]) -> None:
        if "ai.onnx" not in opsets:
            raise popart_exception("No opset provided for domain 'ai.onnx'", "Builder(opsets=...)")
        self._fix_opset(int(opsets["ai.onnx"]), f"aiOnnxOpset{opsets['ai.onnx']}")

    def _fix_opset(self, version: int, asked: str) -> None:
        """Fixes the opset version of the model at the first one used."""
        root = self._root
        if not FIRST_OPSET <= version <= LAST_OPSET:
            raise ValueError(
                f"Unsupported or unrecognized ai.onnx opset: {version}; "
                f"{FIRST_OPSET} to {LAST_OPSET} are known"
            )
        if root._version is None:
            root._version = version
            root._draft.writer.opsets[""] = version
            root._draft.writer.inference.opsets[""] = version
            self._draft.writer.opsets[""] = version
        elif root._version != version:
            raise RuntimeError(
                f"Invalid opset '{asked}' selected. Opset for domain ai.onnx already defined as "
                f"{root._version}"
            )

    @property
    def _root(self) -> Builder:
        return self if self._parent is None else self._parent._root

    def aiOnnxOpset(self, version: int) -> Opset:
        """The operators of a version of ai.onnx; versions newer than PopART's are an extension."""
        self._fix_opset(version, f"aiOnnxOpset{version}")
        self._draft.writer.opsets[""] = version
        return onnx_opset(version)(self)

    def aiOnnxOpsetVersion(self, version: int) -> Opset:
        return self.aiOnnxOpset(version)

    @property
    def aiOnnx(self) -> Any:
        """The operators of the version in use."""
        return self.aiOnnxOpset(self._root._version or self.DEFAULT_OPSET)

    @property
    def aiGraphcore(self) -> AiGraphcoreOpset1:
        """PopART's own operators."""
        self._root._draft.writer.opsets.setdefault(DOMAIN, 1)
        return AiGraphcoreOpset1(self)

    def _errors(self) -> AbstractContextManager[None]:
        return as_popart_errors()

    @property
    def aiGraphcoreOpset1(self) -> AiGraphcoreOpset1:
        return self.aiGraphcore

    @property
    def aiOnnxMlOpset1(self) -> AiOnnxMl:
        return AiOnnxMl(self)

    def __getattr__(self, name: str) -> Any:
        found = re.fullmatch(r"aiOnnxOpset(\d+)", name)
        if found is None:
            raise AttributeError(f"'Builder' object has no attribute '{name}'")
        return self.aiOnnxOpset(int(found[1]))

    # inputs and outputs

    def addInputTensor(self, *args: Any, **named: Any) -> str:
        """
        An input: `addInputTensor("FLOAT", [2, 3])` or `addInputTensor(TensorInfo(...))`, then
        optional `InputSettings` and a name.
        """
        given = overloaded("addInputTensor", _INPUTS, args, named)
        info, settings = given.get("tensorInfo"), given.get("settings", InputSettings())
        if not isinstance(info, TensorInfo):
            info = TensorInfo(*(info or (given["dataType"], given["shape"])))
        if any(isinstance(dim, int) and dim < 0 for dim in info.shape()):
            raise popart_exception(
                f"Tensor shape {info.shape()} has a negative dimension", "addInputTensor"
            )
        id = self._input(tensor_type(info.row, info.shape()), given.get("debugContext", ""))
        self._draft.notes |= stream_notes(id, settings)
        return id

    def addUntypedInputTensor(self, debugContext: object = "") -> str:
        """An input of a subgraph whose type is that of the call's operand."""
        if self._parent is None:
            raise popart_exception(
                "Can not add untyped tensors to the top-level graph. Use "
                "Builder::addInputTensor(const TensorInfo &tensorInfo, const std::string "
                "&debugPrefix) instead."
            )
        return self._input(UNKNOWN, debugContext)

    def _input(self, type_: Attribute, name: object) -> str:
        id = self._draft.add_input(_text(name) or "input", type_)
        self._note_call(
            name, [id], {"category": "variable", "api": "addInputTensor", "tensorId": id}
        )
        return id

    def addInputTensorFromParentGraph(self, tensorId: str) -> None:
        """Makes a tensor of the parent graph available in this subgraph."""
        if self._parent is None or not self._parent._draft.writer.has_value(tensorId):
            raise popart_exception(
                f"Failed to add unrecognised Tensor {tensorId} from higher scope, Currently, a "
                "Tensor must already exist in a higher (parent) scope to add it as an input in a "
                "lower scope."
            )
        self._draft.add_from_parent(tensorId)

    def addInitializedInputTensor(self, *args: Any, **named: Any) -> str:
        """A weight: its initial value, which is copied, optional `VariableSettings`, and a name."""
        given = overloaded("addInitializedInputTensor", _WEIGHTS, args, named)
        name = _text(given.get("debugContext", "")) or "init_input"
        settings = given.get("variableSettings", VariableSettings())
        id = self._draft.add_weight(name, given["initVal"], settings != VariableSettings())
        self._draft.notes |= groups_note(id, settings)
        about: dict[str, Json] = {"category": "variable", "api": "addInitializedInputTensor"}
        self._note_call(given.get("debugContext", ""), [id], {**about, "tensorId": id})
        return id

    def addOutputTensor(self, outputName: str) -> None:
        """Makes a tensor an output of the graph; in a subgraph, it may be several outputs."""
        self._draft.add_output(outputName, repeated=self._parent is not None)

    # nodes

    def add_node(
        self,
        op_type: str,
        domain: str,
        args: Sequence[str],
        attributes: Mapping[str, object],
        outputs: int,
        debugContext: object,
    ) -> list[str]:
        """Adds an ONNX node; called by the methods of `aiOnnx`."""
        given = {
            name: value.graph() if isinstance(value, Builder) else value
            for name, value in attributes.items()
        }
        if domain:
            return self.plain_node(op_type, args, given, outputs, debugContext, domain)
        version = self._root._version
        return popart_node(self, version, op_type, args, given, outputs, debugContext)

    def plain_node(
        self,
        op_type: str,
        args: Sequence[str],
        attributes: Mapping[str, object],
        outputs: int,
        debugContext: object,
        domain: str = "",
        result_types: Sequence[Attribute] | None = None,
    ) -> list[str]:
        """Adds a node with standard ONNX semantics, or of another domain."""
        ids = [self._draft.names.new(op_type, index) for index in range(outputs)]
        return self.named_node(op_type, domain, args, attributes, ids, result_types, debugContext)

    def add_custom_node(
        self,
        op_type: str,
        domain: str,
        args: Sequence[str],
        attributes: Mapping[str, object],
        result_types: Sequence[Attribute],
        debugContext: object,
    ) -> list[str]:
        """Adds a node of another domain, with given result types."""
        self._root._draft.writer.opsets.setdefault(domain, 1)
        count = len(result_types)
        return self.plain_node(op_type, args, attributes, count, debugContext, domain, result_types)

    def refuses(
        self, op_type: str, domain: str, args: Sequence[str], attributes: Mapping[str, object]
    ) -> bool:
        """Whether a session will reject the node, so that its types do not matter."""
        return self._draft.refuses(op_type, domain, args, attributes)

    def named_node(
        self,
        op_type: str,
        domain: str,
        args: Sequence[str],
        attributes: Mapping[str, object],
        ids: Sequence[str],
        result_types: Sequence[Attribute] | None = None,
        debugContext: object = "",
    ) -> list[str]:
        """Adds a node with these output ids."""
        label = _text(debugContext)
        if not domain and not self._draft.refuses_early:
            narrow = self._draft.indices_to_narrow(op_type, args)
            args = [self._as_int32(id) if at in narrow else id for at, id in enumerate(args)]
        op = self._draft.add_node(op_type, domain, args, attributes, ids, result_types, label)
        self.annotate(op)
        call: dict[str, Json] = {
            "category": "api",
            "api": _method(op),
            "inputs": list[Json](args),
            "outputs": list[Json](ids),
            "attributes": {name: str(value) for name, value in attributes.items()},
        }
        self._note_call(debugContext, ids, call)
        return list(ids)

    def _note_call(self, context: object, ids: Sequence[str], values: Mapping[str, Json]) -> None:
        """Numbers a call, and records it in the debug info file, if one is open."""
        number = new_id()
        self._root._debug_ids |= dict.fromkeys(ids, number)
        infos = being_written()
        if infos is not None:
            infos.add_call(context, values, number)
            infos.made_by |= dict.fromkeys(ids, number)

    def _as_int32(self, id: str) -> str:
        return self.plain_node("Cast", [id], {"to": BY_POPART["INT32"].onnx}, 1, "")[0]

    def customOp(
        self,
        opName: str,
        opVersion: int,
        domain: str,
        inputs: Sequence[str],
        attributes: Mapping[str, object],
        numOutputs: int = 1,
        name: str = "",
    ) -> list[str]:
        """Adds a node of any domain."""
        attributes = {key: _custom_attribute(key, value) for key, value in attributes.items()}
        self._root._draft.writer.opsets.setdefault(domain, opVersion)
        types = [UNKNOWN] * numOutputs
        return self.add_custom_node(opName, domain, inputs, attributes, types, name)

    def reshape_const(
        self,
        aiOnnx: Any,
        args: Sequence[str],
        shape: Sequence[float],
        debugContext: object = "",
        *,
        debugPrefix: object = "",
    ) -> str:
        """
        Reshapes to a constant shape; float dimensions, such as quotients, are converted to
        integers.
        """
        debugContext = debugContext or debugPrefix
        label = f"{_text(debugContext)}_const"
        held = aiOnnx.constant(np.array(shape).astype(np.int64), debugContext=label)
        return str(aiOnnx.reshape([args[0], held], debugContext=debugContext))

    def checkpointOutput(self, nodeOutputNames: NodeIds) -> list[str]:
        """Adds identities of tensors that are checkpoints for the backward pass."""
        ids = [nodeOutputNames] if isinstance(nodeOutputNames, str) else list(nodeOutputNames)
        made = [str(self.aiOnnx.identity([id])) for id in ids]
        for id in made:
            self._annotate(RECOMPUTE, id, RecomputeType.Checkpoint)
        return made

    # queries

    def value_of(self, id: str) -> SSAValue:
        return self._draft.value_of(id)

    def type_of(self, id: str) -> Attribute:
        """The type of a tensor, if known."""
        return self.value_of(id).type

    def _shown_type(self, id: str) -> Attribute:
        """The type of a tensor; for a weight with replica groups, the type of its array."""
        return self._draft.grouped.get(id) or self.type_of(id)

    def getTensorShape(self, id: str) -> list[int | str]:
        shape = dims(self._shown_type(id))
        if shape is None:
            raise popart_exception(f"The shape of tensor {id} is not known")
        return [-1 if dim is None else dim for dim in shape]

    def getTensorDtypeString(self, id: str) -> str:
        """`float32`, `int64`, ..."""
        type_ = self._shown_type(id)
        if not isinstance(type_, TensorType | UnrankedTensorType):
            raise popart_exception(f"The data type of tensor {id} is not known")
        if not element_types.is_number(type_.element_type):
            raise popart_exception(f"Tensor {id} holds no numbers", hint="it holds texts")
        return str(element_types.from_ir(type_.element_type).numpy)

    def _has(self, id: str) -> bool:
        return self._draft.writer.has_value(id)

    def hasValueInfo(self, id: str) -> bool:
        return self._has(id) and isinstance(self._shown_type(id), TensorType)

    def isInitializer(self, id: str) -> bool:
        self.value_of(id)
        return id in self._draft.initialized

    def getInputTensorIds(self) -> list[str]:
        """Inputs and weights, in the order in which they were added."""
        return list(self._draft.inputs)

    def getOutputTensorIds(self) -> list[str]:
        return list(self._draft.outputs)

    def getValueTensorIds(self) -> list[str]:
        """The results of nodes."""
        return self._draft.computed()

    def getTrainableTensorIds(self) -> list[str]:
        """Floating-point weights."""
        return [id for id in self._draft.initialized if self._is_float(id)]

    def _is_float(self, id: str) -> bool:
        type_ = self.type_of(id)
        is_number = isinstance(type_, TensorType) and element_types.is_number(type_.element_type)
        return is_number and self.getTensorDtypeString(id).startswith("float")

    # scopes and graphs

    def nameScope(self, name: str) -> NameContextManager:
        """Within it, names begin with `name/`."""
        return NameContextManager(self._draft.names.scopes, name)

    def getNameScope(self, name: str = "") -> str:
        names = self._draft.names
        return names.scoped(name) if name else "".join(f"{scope}/" for scope in names.scopes)

    def setGraphName(self, name: str) -> None:
        self._draft.writer.name = name

    def createSubgraphBuilder(self) -> Builder:
        """A builder of a subgraph for a node of this graph (`call`, `logical_if`, `loop`)."""
        return self._createSubgraphBuilder()

    def _createSubgraphBuilder(self) -> Builder:
        """PopART's core of a builder, which is a builder itself here."""
        return type(self)(builderCore=self)

    def embedReplicationFactor(self, replicationFactor: int) -> None:
        """Records in the model the number of replicas of its weights."""
        if replicationFactor < 1:
            raise popart_exception(
                f"there cannot be {replicationFactor} replicas", "embedReplicationFactor"
            )
        self._draft.notes[REPLICATION] = str(replicationFactor)

    # the model

    def graph(self) -> Graph:
        """A copy of the graph so far."""
        return self._draft.graph()

    def called_graph(self) -> Graph:
        """A copy of the graph so far, to be called: tensors of the parent graph become inputs."""
        return self._draft.called_graph()

    def called_inputs(self) -> list[str]:
        """The ids of the operands of a call."""
        return self._draft.called_inputs

    def module(self) -> ModuleOp:
        """The unfinished model as IR; its large weights are in `weights`."""
        return self._draft.module()

    def getModelProto(self) -> bytes:
        """The unfinished model as serialized ONNX."""
        with as_popart_errors():
            message = exported(self.module(), self.weights, self._external)
            return bytes(message.SerializeToString())

    def saveInitializersExternally(self, ids: Sequence[str], filename: str) -> None:
        """
        Writes weights to a file, which the model then refers to; for models of more than 2 GB.
        """
        with as_popart_errors():
            message = exported(self.module(), self.weights, self._external)
            self._external |= save_externally(message, ids, str(filename))

    def saveModelProto(self, filename: str | Path) -> None:
        """Writes the unfinished model as serialized ONNX."""
        content = self.getModelProto()
        with writing(f"Failed to open file {filename}"):
            write_file(filename, [content])

    def to_pgraph(self) -> pgraph.Listing:
        """The unfinished model as `.pgraph` text, with all weights."""
        return pgraph.Listing.of(self.module(), self.weights)

    def _repr_html_(self) -> str:
        """The model in a notebook; large weights are only named."""
        if not self._draft.outputs:
            return f"<pre>{escape(repr(self))}: no outputs yet</pre>"
        return pgraph.Listing.of(self.module(), self.weights, whole=False)._repr_html_()

    def take(self, module: ModuleOp) -> None:
        """Takes over a model's graph to continue with."""
        self._draft = Draft.continuing(module, self.weights, self._names())
        self._version = self._draft.writer.opsets.get("")


def _text(context: object) -> str:
    """The name in a debug context, which is usually just a string."""
    return context if isinstance(context, str) else str(getattr(context, "name", "") or "")


def _method(op: OnnxOp) -> str:
    """PopART's name of the method that adds a node."""
    if not op.domain:
        opset = max(FIRST_OPSET, op.since_version)
        return f"popart::AiOnnxOpset{opset}::{method_name(op.op_type)}"
    name = op.op_type.lower()
    found = name if hasattr(AiGraphcoreOpset1, name) else f"{name}loss"
    is_method = op.domain == DOMAIN and hasattr(AiGraphcoreOpset1, found)
    return f"popart::AiGraphcoreOpset1::{found}" if is_method else "popart::Builder::customOp"


def _form(**parameters: object) -> Signature:
    """A signature: parameters with annotations, and a debug context."""
    kind = Parameter.POSITIONAL_OR_KEYWORD
    found = [Parameter(name, kind, annotation=one) for name, one in parameters.items()]
    return Signature([*found, Parameter("debugContext", kind, default="", annotation=str)])


_INPUTS = (
    _form(tensorInfo=TensorInfo, settings=InputSettings),
    _form(tensorInfo=TensorInfo),
    _form(tensorInfo=tuple),
    _form(dataType=object, shape=list, settings=InputSettings),
    _form(dataType=object, shape=list),
)
_WEIGHTS = (
    _form(initVal=np.ndarray, variableSettings=VariableSettings),
    _form(initVal=np.ndarray),
)


def _custom_attribute(name: str, value: object) -> object:
    """A string or number, or a list of strings or of numbers; anything else is rejected."""
    if isinstance(value, list | tuple):
        # Integers of NumPy are accepted in lists only, as in all releases of PopART except the
        # last.
        found = [int(one) if isinstance(one, np.integer) else one for one in value]
        kinds = {str if isinstance(one, str) else float for one in found if _is_plain(one)}
        if len(kinds) > 1 or not all(map(_is_plain, found)):
            raise popart_exception(
                f"Invalid or mismatched python list type provided in custom op attribute '{name}'"
            )
        return found
    if not _is_plain(value):
        raise popart_exception(f"Invalid type provided in custom op attribute '{name}'")
    return value


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float)
