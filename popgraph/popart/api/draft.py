"""The draft of a graph: the nodes written by a builder, and the model that it began with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from logging import DEBUG

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, TensorType, i32, i64
from xdsl.ir import Attribute, Region, SSAValue

from popgraph.builder.opset.checks import IMMEDIATE_CHECKS, Node, complaint, immediate_complaint
from popgraph.builder.opset.checks.graphcore import OPERANDS
from popgraph.builder.opset.checks.reading import VERSION
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.builder.opset.windows import check_window
from popgraph.dialects.onnx import Custom, Graph, Model, OnnxOp, Yield, model_of
from popgraph.dialects.onnx.adoption import adopt
from popgraph.dialects.onnx.attributes import MetadataAttr, OpsetAttr, ValueInfoAttr
from popgraph.dialects.onnx.schema_inference import types_if_admitted
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.schemas import op_class
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.types import UNKNOWN, static_shape
from popgraph.dialects.onnx.writer import IR_VERSION, GraphWriter
from popgraph.dialects.program import WeightStore
from popgraph.dialects.value_types import set_type
from popgraph.popart.api.debugging import place_of_call
from popgraph.popart.api.names import Names
from popgraph.popart.api.refusals import refusal_note
from popgraph.popart.exceptions import as_popart_errors, popart_exception
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError
from popgraph.support.logs import log_of
from popgraph.support.names import closest
from popgraph.support.shapes import Shape

_LOG = log_of("builder")


UNBOUNDED = 2**31 - 1
"""The maximal operand count in schemas of variadic operators."""


class Draft:
    """
    A graph under construction, whose tensors are ids.

    `inputs` are the ids of inputs and weights in the order of their addition, `initialized` only
    the ids of weights. `base` is the model that the draft continues, if any.
    """

    def __init__(self, writer: GraphWriter, names: Names, base: Model | None = None) -> None:
        self.writer, self.names, self.base = writer, names, base
        self.inputs: list[str] = []
        self.initialized: list[str] = []
        self.outputs: list[str] = []
        self.called_inputs: list[str] = []
        """The operands of a call of this graph: its own inputs, and tensors of the parent graph."""
        self.notes: dict[str, str] = {}
        """Metadata of the model about its tensors."""
        self.refuses_early = True
        """Whether a node with invalid operands is rejected when it is added."""
        self.grouped: dict[str, Attribute] = {}
        """The array types of weights with replica groups."""
        self._home = Region(writer.block)
        self._nodes = 0
        """The number of nodes added."""

    @classmethod
    def empty(cls, weights: WeightStore, names: Names, opset: int) -> Draft:
        return cls(GraphWriter({"": opset}, weights, name="BuilderGraph"), names)

    @classmethod
    def continuing(cls, module: ModuleOp, weights: WeightStore, names: Names) -> Draft:
        """A draft that continues the graph of a model and takes over its module."""
        base = model_of(module)
        functions = {key: one.clone() for key, one in base.functions.items()}
        name = base.graph.graph_name.text
        draft = cls(
            GraphWriter(base.opset_versions, weights, name=name, functions=functions), names, base
        )
        draft.outputs = list(base.graph.output_names)
        draft.initialized = [op.value_name.text for op in base.graph.initializers]
        draft.inputs = [*base.graph.input_names, *draft.initialized]
        draft.notes = {} if base.metadata is None else dict(base.metadata.entries)
        for id in filter(None, adopt(draft.writer, base.graph, infer=False)):
            draft.names.take(id)
        draft._nodes = sum(isinstance(op, OnnxOp) for op in draft.writer.block.ops)
        return draft

    def inner(self) -> Draft:
        """A draft of a subgraph, which sees the tensors of this graph."""
        names = type(self.names)(self.names)
        found = Draft(self.writer.subgraph(names.new("subgraph")), names)
        found.refuses_early, found.notes = self.refuses_early, self.notes
        return found

    # inputs, weights, outputs

    def add_input(self, stem: str, type_: Attribute) -> str:
        id = self.names.new(stem)
        self.writer.add_input(id, type_)
        self.inputs.append(id)
        self.called_inputs.append(id)
        return id

    def add_from_parent(self, id: str) -> None:
        """Makes a tensor of the parent graph an operand of calls."""
        if id not in self.called_inputs:
            self.called_inputs.append(id)

    def add_weight(self, stem: str, array: Array, grouped: bool = False) -> str:
        """
        Adds a weight with a copy of its initial value.

        If `grouped`, the array may have a leading axis for groups of replicas. The number of groups
        is only known when a session is created; until then, nodes see an unknown shape.
        """
        id = self.names.new(stem)
        with as_popart_errors():
            first = from_value(np.array(array, order="C", copy=True), self.writer.store)
            value = self.writer.add_initializer(id, first.typed())  # `float_data`, as in PopART
        if grouped:
            self.grouped[id] = value.type
            set_type(value, UNKNOWN)
        self.inputs.append(id)
        self.initialized.append(id)
        return id

    def add_output(self, id: str, repeated: bool = False) -> None:
        """Adds an output. A subgraph may return a tensor several times: `repeated`."""
        self.value_of(id)
        if id in self.outputs and not repeated:
            raise popart_exception(f"{id} already an output")
        self.outputs.append(id)

    # nodes and their values

    def add_node(
        self,
        op_type: str,
        domain: str,
        args: Sequence[str],
        attributes: Mapping[str, object],
        ids: Sequence[str],
        result_types: Sequence[Attribute] | None,
        label: str,
    ) -> OnnxOp:
        """Adds a node with these output ids."""
        self._check_results(op_type, domain, len(ids))
        self._check_operands(op_type, domain, args)
        if not domain:
            with as_popart_errors():
                check_window(op_type, args, [self._shape(id) for id in args], attributes)
        name = self.names.scoped(label or op_type) if label or self.names.scopes else ""
        seen = partial(self.seen, op_type, domain, args, attributes, ids, name)
        if (domain, op_type) in IMMEDIATE_CHECKS:
            self._check_at_once(seen())
        for id in ids:
            self.names.take(id)
        with as_popart_errors():
            try:
                values = self.writer.add_node(
                    op_type,
                    [id or None for id in args],
                    attributes,
                    domain=domain,
                    outputs=list(ids),
                    name=name,
                    result_types=result_types,
                )
            except TypeMismatchError as error:
                said = error if domain else _with_popart_message(error, seen())
                if self.refuses_early or domain or not isinstance(error.node, OnnxOp):
                    raise said from error
                values = self._infer_despite_refusal(error.node)
                for key, note in refusal_note(said).items():
                    self.notes.setdefault(key, note)
        self._nodes += 1
        owner = values[0].owner if values else self.writer.block.last_op
        assert isinstance(owner, OnnxOp)
        owner.locate(place_of_call())
        if _LOG.isEnabledFor(DEBUG):
            self._log_node(owner, domain)
        return owner

    def _infer_despite_refusal(self, op: OnnxOp) -> list[SSAValue]:
        """Infers the types of a node that a session will reject, as PopART does."""
        if isinstance(op, SchemaOp):
            inference = self.writer.inference
            types = types_if_admitted(op, inference.known, inference.store, inference.opsets)
            for value, type_ in zip(op.results, types, strict=True):
                set_type(value, type_)
        return list(op.results)

    def indices_to_narrow(self, op_type: str, args: Sequence[str]) -> set[int]:
        """The operands that are i64 indices, where other operands of the same type are i32."""
        values = [self.writer.value(id) if self.writer.has_value(id) else None for id in args]
        return _indices_to_narrow(self._class(op_type), values)

    def _check_at_once(self, node: Node) -> None:
        if (said := immediate_complaint(node)) is not None:
            raise popart_exception(said)

    def refuses(
        self, op_type: str, domain: str, args: Sequence[str], attributes: Mapping[str, object]
    ) -> bool:
        """Whether a session will reject the node; raises the error if the builder is strict."""
        self._check_operands(op_type, domain, args)
        said = complaint(self.seen(op_type, domain, args, attributes))
        if said is not None and self.refuses_early:
            raise popart_exception(said)
        return said is not None

    def _shape(self, id: str) -> Shape | None:
        known = bool(id) and self.writer.has_value(id)
        return static_shape(self.writer.value(id).type) if known else None

    def _log_node(self, op: OnnxOp, domain: str) -> None:
        name = f"{domain or 'ai.onnx'}.{op.op_type}:{op.since_version}"
        _LOG.debug("Adding %s to builder opset:%d", name, self.writer.opsets.get(domain, 1))

    def seen(
        self,
        op_type: str,
        domain: str,
        args: Sequence[str],
        attributes: Mapping[str, object],
        ids: Sequence[str] = (),
        name: str = "",
    ) -> Node:
        """A node as PopART's rules see it, before it is added."""
        values = [self.writer.value(id) if id else None for id in args]
        known = self.writer.inference.known
        return Node(
            op_type,
            VERSION.get(domain) or self._version(op_type, domain),
            name,
            args,
            ids,
            [UNKNOWN if value is None else value.type for value in values],
            attributes,
            domain,
            self._nodes,
            frozenset(),
            {
                place: known[value]
                for place, value in enumerate(values)
                if value is not None and value in known
            },
        )

    def _class(self, op_type: str, domain: str = "") -> type[SchemaOp]:
        with as_popart_errors():
            return op_class(op_type, self.writer.opsets[domain])

    def _version(self, op_type: str, domain: str) -> int:
        return int(self._class(op_type, domain).SCHEMA.since_version)

    def _operands(self, op_type: str, domain: str) -> tuple[int, int]:
        """Minimal and maximal number of operands."""
        if domain:
            return OPERANDS.get(op_type, (0, UNBOUNDED)) if domain == DOMAIN else (0, UNBOUNDED)
        schema = self._class(op_type, domain).SCHEMA
        return schema.min_input, schema.max_input

    def _check_results(self, op_type: str, domain: str, count: int) -> None:
        """Checks the number of results of an ONNX operator."""
        schema = None if domain else self._class(op_type).SCHEMA
        if schema is not None and count > schema.max_output:
            raise popart_exception(
                f"{op_type} has an invalid number of outputs {count}. Must be between "
                f"0..{schema.max_output}"
            )

    def _check_operands(self, op_type: str, domain: str, args: Sequence[str]) -> None:
        """Checks the number of operands, and that all of them exist."""
        least, most = self._operands(op_type, domain)
        if least and not least <= len(args) <= most:
            shown = "inf" if most >= UNBOUNDED else most
            raise popart_exception(
                f"{op_type} has invalid number of inputs {len(args)}. Must be between "
                f"{least}..{shown}"
            )
        for place, id in enumerate(args):
            optional = place >= least or self.refuses_early or (op_type, place) == ("Resize", 2)
            absent = not id and optional
            if not absent and not self.writer.has_value(id):
                raise self._unknown(id)

    def _unknown(self, id: str) -> popart_exception:
        valid = sorted([*self.inputs, *self.computed()])
        told = (
            f"valid tensors are {', '.join(valid)}" if valid else "there are no valid tensors yet"
        )
        near = closest(id, valid)
        hint = (
            f"did you mean '{near}'?" if near else "give the id that a call of the builder returned"
        )
        return popart_exception(f"Unknown tensor '{id}' ({told}).", hint=hint)

    def value_of(self, id: str) -> SSAValue:
        if not self.writer.has_value(id):
            shown = ("".join(f"{one} " for one in ids) for ids in (self.inputs, self.outputs))
            inputs, outputs = shown
            values = "".join(f"{one} " for one in self.computed() if one not in self.outputs)
            raise popart_exception(
                f"{id} is not an known tensor. Must be one of (inputs:{inputs}) "
                f"(outputs:{outputs}) (values:{values}). Please check the info log level to "
                "confirm whether the shape has been inferred successfully for the requested tensor."
            )
        return self.writer.value(id)

    def computed(self) -> list[str]:
        """The ids of all results of nodes."""
        nodes = (op for op in self.writer.block.ops if isinstance(op, OnnxOp))
        return [name for op in nodes for name in op.output_names if name]

    # the result

    def graph(self) -> Graph:
        """A copy of the graph so far."""
        copied = Region()
        values: dict[SSAValue, SSAValue] = {}
        self._home.clone_into(copied, value_mapper=values)
        for id, type_ in self.grouped.items():
            set_type(values[self.value_of(id)], type_)
        outputs = [self.value_of(id) for id in self.outputs]
        copied.block.add_op(Yield([values.get(value, value) for value in outputs]))
        infos = [
            ValueInfoAttr.of(id, value.type)
            for id, value in zip(self.outputs, outputs, strict=True)
        ]
        base = None if self.base is None else self.base.graph
        rest = b"" if base is None or base.rest is None else base.rest.data
        return Graph(self.writer.name, self.writer.inputs, infos, copied, self._declared(), rest)

    def called_graph(self) -> Graph:
        """A copy of the graph so far, with tensors of the parent graph as inputs."""
        graph = self.graph()
        infos = {info.text: info for info in graph.inputs}
        for place, id in enumerate(self.called_inputs):
            if id in infos:
                continue
            outer = self.value_of(id)
            inner = graph.block.insert_arg(outer.type, place)
            infos[id] = ValueInfoAttr.of(self.names.new(id), outer.type)
            for op in graph.block.walk():
                for index, operand in enumerate(op.operands):
                    if operand is outer:
                        op.operands[index] = inner
        graph.properties["inputs"] = ArrayAttr([infos[id] for id in self.called_inputs])
        return graph

    def _declared(self) -> list[ValueInfoAttr]:
        """Declarations of inner values whose types cannot be inferred from nodes."""
        base = None if self.base is None else self.base.graph.value_infos
        infos = {} if base is None else {info.text: info for info in base}
        for op in self.writer.block.ops:
            if isinstance(op, Custom):
                for name, value in zip(op.output_names, op.output_values(), strict=False):
                    if value is not None and value.type != UNKNOWN and name not in self.outputs:
                        infos.setdefault(name, ValueInfoAttr.of(name, value.type))
        return list(infos.values())

    def module(self) -> ModuleOp:
        """A model of the graph so far."""
        imports = [OpsetAttr.of(*pair) for pair in self.writer.opsets.items()]
        functions = [function.clone() for function in self.writer.functions.values()]
        version = IR_VERSION
        about: dict[str, Attribute] = {}
        if self.base is not None:
            version = max(version, self.base.ir_version.value.data)
            told = ("ir_version", "opsets")
            about = {k: v for k, v in self.base.properties.items() if k not in told}
        if self.notes:
            about["metadata"] = MetadataAttr.of(self.notes.items())
        return ModuleOp([Model(version, imports, functions, self.graph(), about)])


def _with_popart_message(error: TypeMismatchError, node: Node) -> TypeMismatchError:
    """The error with PopART's message, if there is one; ONNX's message becomes the hint."""
    said = complaint(node)
    return TypeMismatchError(said, error.where, error.what) if said else error


_FINDERS = {("", "ArgMax"): 0, ("", "ArgMin"): 0, ("", "TopK"): 1}
"""The output of an operator that is an index."""


def _indices_to_narrow(kind: type[SchemaOp], operands: Sequence[SSAValue | None]) -> set[int]:
    """
    Operands that are i64 indices, while other operands of the same type variable are i32.

    ONNX's indices have 64 bits and PopART's 32, and PopART programs compare them with labels.
    """
    formals = kind.SCHEMA.inputs
    types = [formals[min(at, len(formals) - 1)].type_str for at in range(len(operands))]
    short = {type_ for type_, one in zip(types, operands, strict=True) if _has(one, i32)}
    return {
        at
        for at, (type_, one) in enumerate(zip(types, operands, strict=True))
        if type_ in short and one is not None and _has(one, i64) and _is_index_result(one)
    }


def _has(value: SSAValue | None, element: object) -> bool:
    return (
        value is not None
        and isinstance(value.type, TensorType)
        and value.type.element_type == element
    )


def _is_index_result(value: SSAValue) -> bool:
    node = value.owner
    if not isinstance(node, OnnxOp):
        return False
    output = _FINDERS.get((node.domain, node.op_type))
    return output is not None and node.output_values()[output] is value
