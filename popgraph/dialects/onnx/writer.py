"""The writer of onnx IR for all frontends: adds nodes and infers their types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute, Block, BlockArgument, Region, SSAValue

from popgraph.dialects.onnx.attributeproto import from_python
from popgraph.dialects.onnx.attributes import (
    OpsetAttr,
    SparseTensorAttr,
    ValueInfoAttr,
)
from popgraph.dialects.onnx.containers import Function, Model, standard_domain, value_name
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.functions import definition_of
from popgraph.dialects.onnx.inference import Inference
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph, OnnxOp, Yield
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.schemas import PREFIXES, op_class
from popgraph.dialects.onnx.syntax import SINGLE, VARIADIC
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.types import UNKNOWN, NamesAttr, describe, erased, refined
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.dialects.value_types import set_type
from popgraph.support.errors import ModelError, PopgraphError, TypeMismatchError
from popgraph.support.names import closest, hint

IR_VERSION = 10
"""The IR version of models created here: the newest that all common runtimes accept."""

Input = SSAValue | str | None
FunctionKey = tuple[str, str, str]
"""Domain, name and overload."""


class Graphs(list[Graph]):
    """The value of an attribute that is a list of graphs."""


class GraphWriter:
    """
    Builds one graph node by node, and infers result types as it goes.

    `opsets` are the imported operator set versions by domain ("" is ai.onnx). Operands are values
    or names. `functions` are the model's functions, `calls` the keys of functions that are not
    read yet. `subgraph()` returns a writer for a graph attribute of a node, which sees the values
    defined so far.
    """

    def __init__(
        self,
        opsets: Mapping[str, int],
        store: WeightStore,
        *,
        name: str = "graph",
        functions: Mapping[FunctionKey, Function] | None = None,
        calls: Collection[FunctionKey] = (),
        typed: bool = True,
        lenient: bool = False,
        parent: GraphWriter | None = None,
    ) -> None:
        self.opsets = {standard_domain(domain): version for domain, version in opsets.items()}
        self.store = store
        self.name = name
        self.parent = parent
        self.functions: dict[FunctionKey, Function] = dict(functions or {})
        self.calls = frozenset(calls)
        self.typed = typed
        """False in functions, where values have no types."""
        self.lenient = lenient
        """True in branches, which may be ill-typed if never taken."""
        self.inference: Inference = (
            Inference(self.opsets, store, self.functions) if parent is None else parent.inference
        )
        self.block = Block()
        self.inputs: list[ValueInfoAttr] = []
        self.outputs: list[ValueInfoAttr] | None = None
        self.declared: dict[str, Attribute] = {}
        """Types that the model declares for values that are not written yet."""
        self._values: dict[str, SSAValue] = {}
        self._counts: dict[str, int] = {}

    # names

    def value(self, name: str) -> SSAValue:
        """The value of this name, in this graph or an enclosing one."""
        scope: GraphWriter | None = self
        while scope is not None:
            if name in scope._values:
                return scope._values[name]
            scope = scope.parent
        raise self._no_value(name)

    def capture(self, values: Mapping[str, SSAValue]) -> None:
        """Registers outer values that nodes may use."""
        self._values.update(values)

    def has_value(self, name: str) -> bool:
        return name in self._values or (self.parent is not None and self.parent.has_value(name))

    def _no_value(self, name: str) -> ModelError:
        names: list[str] = []
        scope: GraphWriter | None = self
        while scope is not None:
            names.extend(scope._values)
            scope = scope.parent
        close = closest(name, names)
        return ModelError(
            f"no value {name!r} has been defined",
            f"graph {self.name!r}",
            f"the closest name is {close!r}" if close else "define it before it is used",
        )

    def fresh_name(self, stem: str) -> str:
        """A name that no value has yet."""
        while True:
            count = self._counts.get(stem, 0)
            self._counts[stem] = count + 1
            name = f"{stem}_{count}" if count else stem
            if not self.has_value(name):
                return name

    def _define(self, name: str, value: SSAValue, where: Callable[[], str]) -> SSAValue:
        if name in self._values:
            raise ModelError(
                f"two values have the name {name!r}",
                where(),
                "give every value of the graph a unique name",
            )
        self._values[name] = value
        value.name_hint = hint(name)
        return value

    def import_opset(self, domain: str, version: int) -> None:
        """Imports a domain's operator set, here and in enclosing graphs, unless it is imported."""
        writer: GraphWriter | None = self
        while writer is not None:
            writer.opsets.setdefault(domain, version)
            writer.inference.opsets.setdefault(domain, version)
            writer = writer.parent

    # inputs and initializers

    def add_input(
        self,
        name: str,
        type_: Attribute = UNKNOWN,
        *,
        info: ValueInfoAttr | None = None,
    ) -> SSAValue:
        """Adds an input to the graph; see `tensor_type` for its type."""
        if not name:
            raise ModelError("an input of the graph has no name", f"graph {self.name!r}")
        self.inputs.append(info if info is not None else ValueInfoAttr.of(name, type_))
        argument = self.block.insert_arg(type_, len(self.block.args))
        return self._define(name, argument, lambda: f"input {name!r}")

    def add_initializer(
        self,
        name: str,
        value: object,
        *,
        input: ValueInfoAttr | None = None,
        place: int = 0,
    ) -> SSAValue:
        """Adds a constant tensor: an array, a number, a TensorProto or an IR attribute."""
        if not isinstance(value, SparseTensorAttr):
            value = from_value(value, self.store)
        op = Initializer(name, value, input, place)
        self._define(name, op.result, lambda: f"initializer {name!r}")
        self.block.add_op(op)
        self.inference.visit(op)
        return op.result

    # nodes

    def add_node(
        self,
        op_type: str,
        inputs: Sequence[Input] = (),
        attributes: Mapping[str, object] | None = None,
        *,
        domain: str = "",
        outputs: Sequence[str] | int = 1,
        name: str = "",
        doc: str = "",
        overload: str = "",
        result_types: Sequence[Attribute] | None = None,
        extra: Mapping[str, Attribute] | None = None,
    ) -> list[SSAValue]:
        """
        Adds a node; returns the values of its outputs, without absent ones (named "").

        `outputs` are their names, or their number, for generated names. Attributes are Python
        values, IR attributes, or graphs from `subgraph().graph()`. Result types are inferred; for
        operators of other domains that are not functions of the model, pass `result_types`.
        """
        domain = standard_domain(domain)
        names = self._output_names(op_type, outputs)
        operands = [self._operand(value) for value in inputs]
        described = dict(extra or {})
        if name:
            described["name"] = BytesAttr.of(name)
        if doc:
            described["doc"] = BytesAttr.of(doc)
        given = dict(attributes or {})
        op: OnnxOp
        try:
            if self.is_custom(op_type, domain, overload):
                op = self._custom(op_type, domain, operands, given, names, described, overload)
            else:
                op = self._schema_op(op_type, domain, operands, given, names, described)
        except PopgraphError as error:
            where = f"node {name or next(filter(None, names), '')!r}"
            where += f" ({domain + '::' if domain else ''}{op_type})"
            raise type(error)(error.what, error.where or where, error.hint) from error
        return self.add_op(op, result_types)

    def add_op(self, op: OnnxOp, result_types: Sequence[Attribute] | None = None) -> list[SSAValue]:
        """Appends a detached node, infers its types and defines its names."""
        op.locate()
        named = zip(op.output_names, op.output_values(), strict=False)
        for output, value in named:
            if value is not None and output:
                self._define(output, value, op.where)
        self.block.add_op(op)
        if result_types is not None:
            for result, type_ in zip(op.results, result_types, strict=True):
                set_type(result, type_)
        if self.typed:
            self._infer(op)
        return list(op.results)

    def _infer(self, op: OnnxOp) -> None:
        self.inference.lenient = self.lenient
        try:
            self.inference.visit(op)
        except TypeMismatchError as error:
            error.node = error.node or op
            raise
        for name, value in zip(op.output_names, op.output_values(), strict=False):
            if value is None or name not in self.declared:
                continue
            declared = self.declared[name]
            if UNKNOWN not in (value.type, declared) and erased(value.type) != erased(declared):
                raise ModelError(
                    f"value {name!r} is declared as {describe(declared)}, "
                    f"but the node computes {describe(value.type)}",
                    op.where(),
                    "correct the model's value_info",
                )
            set_type(value, refined(value.type, declared))

    def is_custom(self, op_type: str, domain: str, overload: str = "") -> bool:
        """Whether a node is of another domain or calls a function, rather than an ONNX operator."""
        key = (domain, op_type, overload)
        if domain not in PREFIXES or key in self.functions or key in self.calls:
            return True
        return definition_of(domain, op_type) is not None

    def _output_names(self, op_type: str, outputs: Sequence[str] | int) -> Sequence[str]:
        if isinstance(outputs, int):
            return [self.fresh_name(op_type) for _ in range(outputs)]
        return outputs

    def _operand(self, value: Input) -> SSAValue | None:
        return self.value(value) if isinstance(value, str) else value

    def _schema_op(
        self,
        op_type: str,
        domain: str,
        operands: Sequence[SSAValue | None],
        given: Mapping[str, object],
        names: Sequence[str],
        described: Mapping[str, Attribute],
    ) -> SchemaOp:
        if domain not in self.opsets:
            raise ModelError(
                f"the model imports no operator set of domain {domain or 'ai.onnx'}",
                hint="add it to the opset imports",
            )
        cls = op_class(op_type, self.opsets[domain], domain)
        check_arity(cls, operands, names)
        graphs: dict[str, Graph] = {}
        held: dict[str, Attribute] = {}
        for key, value in given.items():
            if key in cls.GRAPHS:
                graphs[key] = _one_graph(key, value)
            elif key in cls.KINDS:
                held[key] = from_python(key, value, cls.KINDS[key], self.store)
                _check_kind(key, held[key], cls)
            else:
                raise _no_attribute(cls, key)
        for key in cls.REQUIRED:
            if key not in given:
                raise ModelError(
                    f"{op_type}-{cls.SCHEMA.since_version} needs the attribute {key!r}"
                )
        return cls.make(operands, held, graphs, names, [UNKNOWN] * len(names), described)

    def _custom(
        self,
        op_type: str,
        domain: str,
        operands: Sequence[SSAValue | None],
        given: Mapping[str, object],
        names: Sequence[str],
        described: Mapping[str, Attribute],
        overload: str,
    ) -> Custom:
        held: dict[str, Attribute | Graph | Sequence[Graph]] = {}
        for key, value in given.items():
            if isinstance(value, Graph | Graphs):
                held[key] = value
            else:
                held[key] = from_python(key, value, None, self.store)
        types = [UNKNOWN] * len(names)
        return Custom.make(domain, op_type, operands, held, names, types, described, overload)

    # the end

    def subgraph(self, name: str = "body", *, lenient: bool = False) -> GraphWriter:
        """A writer for a graph that becomes an attribute of a node of this graph."""
        return GraphWriter(
            self.opsets,
            self.store,
            name=name,
            functions=self.functions,
            calls=self.calls,
            typed=self.typed,
            lenient=lenient or self.lenient,
            parent=self,
        )

    def set_outputs(
        self,
        values: Sequence[SSAValue | str],
        infos: Sequence[ValueInfoAttr] | None = None,
    ) -> None:
        """Sets the outputs of the graph, with their declarations in the model, if any."""
        found = [self.value(value) if isinstance(value, str) else value for value in values]
        self.outputs = list(
            infos or [ValueInfoAttr.of(self.name_of(value), value.type) for value in found]
        )
        self.block.add_op(Yield(found))

    def name_of(self, value: SSAValue) -> str:
        """Like `value_name`, but also for inputs, whose graph does not exist yet."""
        writer: GraphWriter | None = self
        while writer is not None:
            if isinstance(value, BlockArgument) and value.block is writer.block:
                return writer.inputs[value.index].text
            writer = writer.parent
        return value_name(value)

    def graph(self, value_infos: Sequence[ValueInfoAttr] = (), rest: bytes = b"") -> Graph:
        """The finished graph, for an attribute of a node."""
        if self.outputs is None:
            raise ModelError(
                "the graph has no outputs", f"graph {self.name!r}", "call set_outputs first"
            )
        return Graph(self.name, self.inputs, self.outputs, Region(self.block), value_infos, rest)

    def function(
        self,
        domain: str,
        name: str,
        overload: str = "",
        *,
        attributes: Sequence[str] = (),
        defaults: Mapping[str, Attribute] | None = None,
        infos: Sequence[ValueInfoAttr] = (),
        opsets: Sequence[OpsetAttr] | None = None,
        rest: bytes = b"",
    ) -> Function:
        """The function with this body; see `Function` for the arguments."""
        assert self.outputs is not None, "set_outputs comes first"
        return Function(
            properties={
                "domain": BytesAttr.of(domain),
                "function_name": BytesAttr.of(name),
                "overload": BytesAttr.of(overload) if overload else None,
                "inputs": NamesAttr.of([info.text for info in self.inputs]),
                "outputs": NamesAttr.of([info.text for info in self.outputs]),
                "attribute_names": NamesAttr.of(attributes) if attributes else None,
                "default_names": NamesAttr.of(list(defaults)) if defaults else None,
                "default_values": ArrayAttr(defaults.values()) if defaults else None,
                "opsets": ArrayAttr(self._imports() if opsets is None else opsets),
                "value_infos": ArrayAttr(infos) if infos else None,
                "rest": BytesAttr(rest) if rest else None,
            },
            regions=[Region(self.block)],
        )

    def _imports(self) -> list[OpsetAttr]:
        return [OpsetAttr.of(*pair) for pair in self.opsets.items()]

    def add_function(self, function: Function) -> None:
        """Adds a function to the model; nodes with its domain and name call it."""
        self.functions[function.key] = function
        self.inference.functions = self.functions

    def module(
        self,
        *,
        ir_version: int = IR_VERSION,
        about: Mapping[str, Attribute] | None = None,
        opsets: Sequence[OpsetAttr] | None = None,
        graph: Graph | None = None,
    ) -> ModuleOp:
        """The module with the model whose main graph this is."""
        imports = self._imports() if opsets is None else opsets
        functions = list(self.functions.values())
        return ModuleOp([Model(ir_version, imports, functions, graph or self.graph(), about)])


def check_arity(
    cls: type[SchemaOp], operands: Sequence[SSAValue | None], outputs: Sequence[str]
) -> None:
    """Raises ModelError unless the schema accepts these numbers of inputs and outputs."""
    _check_presence(cls, tuple([value is not None for value in operands]), len(outputs))


@lru_cache(maxsize=1 << 12)
def _check_presence(cls: type[SchemaOp], operands: tuple[bool, ...], outputs: int) -> None:
    """Checks which inputs are present, and the number of outputs."""
    schema = cls.SCHEMA
    for kind, slots, present in (
        ("input", cls.INPUTS, operands),
        ("output", cls.OUTPUTS, (True,) * outputs),
    ):
        fixed = [slot for slot in slots if slot.arity != VARIADIC]
        single = sum(slot.arity == SINGLE for slot in slots)
        if len(present) > len(fixed) and len(fixed) == len(slots):
            raise ModelError(
                f"{schema.name}-{schema.since_version} has at most {len(slots)} {kind}s, "
                f"not {len(present)}"
            )
        missing = [
            slot.field
            for place, slot in enumerate(fixed)
            if slot.arity == SINGLE and (place >= len(present) or not present[place])
        ]
        if missing:
            raise ModelError(
                f"{schema.name}-{schema.since_version} needs the {kind} {missing[0]!r}",
                hint=f"{single} {kind}s are required",
            )
        least = schema.min_input if kind == "input" else schema.min_output
        if len(present) < least or not all(present[len(fixed) :]):
            raise ModelError(
                f"{schema.name}-{schema.since_version} needs at least {least} {kind}s, "
                f"all of them present"
            )


def _one_graph(name: str, value: object) -> Graph:
    if not isinstance(value, Graph):
        raise ModelError(
            f"attribute {name!r} must be a graph, not {value!r}",
            hint="pass a graph from GraphWriter.subgraph().graph()",
        )
    return value


def _check_kind(name: str, value: Attribute, cls: type[SchemaOp]) -> None:
    from_schema = cls.KINDS[name]
    if not cls.accepts(name, value):
        raise ModelError(
            f"attribute {name!r} of {cls.SCHEMA.name} must be {from_schema}, not {value}"
        )


def _no_attribute(cls: type[SchemaOp], name: str) -> ModelError:
    known = [*cls.KINDS, *cls.GRAPHS]
    close = closest(name, known)
    return ModelError(
        f"{cls.SCHEMA.name}-{cls.SCHEMA.since_version} has no attribute {name!r}",
        hint=f"the closest name is {close!r}" if close else f"it has {', '.join(known) or 'none'}",
    )
