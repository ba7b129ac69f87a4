"""Edits the main graph of a model at the onnx level: new nodes, constants and operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.onnx import Custom, Initializer, OnnxOp, model_of, op_class
from popgraph.dialects.onnx.attributeproto import from_python
from popgraph.dialects.onnx.attributes import OpsetAttr
from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.evaluation import evaluate_node
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.types import UNKNOWN, NamesAttr
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.passes.analysis.replace import insert_made_for, replace_op
from popgraph.support.arrays import Array

MICROSOFT = "com.microsoft"


class Editor:
    """Adds nodes and constants to the main graph of a model, under names that are free."""

    def __init__(self, module: ModuleOp, store: WeightStore) -> None:
        self.module, self.store = module, store
        self.model = model_of(module)
        self.graph = self.model.graph
        self._names = {*self.graph.input_names}
        for op in self.model.walk():
            if isinstance(op, OnnxOp):
                self._names |= {op.node_name, *op.output_names}
            elif isinstance(op, Initializer):
                self._names.add(op.value_name.text)

    @property
    def opset(self) -> int:
        """The version of the standard operators."""
        return self.model.opset_versions[""]

    def fresh(self, name: str) -> str:
        """The name, with a number if it is taken."""
        found, number = name, 1
        while found in self._names:
            number += 1
            found = f"{name}_{number}"
        self._names.add(found)
        return found

    def constant(self, name: str, array: Array) -> SSAValue:
        """Adds an initializer."""
        made = Initializer(self.fresh(name), from_value(array, self.store))
        first = self.graph.block.first_op
        assert first is not None, "a graph ends with its outputs"
        self.graph.block.insert_op_before(made, first)
        return made.result

    def node(
        self,
        operator: str,
        inputs: Sequence[SSAValue | None],
        name: str,
        before: Operation,
        attributes: Mapping[str, object] | None = None,
        *,
        outputs: int = 1,
        domain: str = "",
    ) -> list[SSAValue]:
        """Adds a node whose first result has this name, before another node."""
        names = [self.fresh(name), *(self.fresh(f"{name}_{one}") for one in range(1, outputs))]
        extra = {"name": BytesAttr.of(names[0])}
        types = [UNKNOWN] * outputs
        given = dict(attributes or {})
        made: OnnxOp
        if domain:
            held = {key: from_python(key, one, None, self.store) for key, one in given.items()}
            made = Custom.make(domain, operator, inputs, held, names, types, extra)
            self._import(domain)
        else:
            cls = op_class(operator, self.opset)
            held = {
                key: from_python(key, one, cls.KINDS[key], self.store) for key, one in given.items()
            }
            made = cls.make(inputs, held, {}, names, types, extra)
        insert_made_for(before, made)
        return list(made.results)

    def _import(self, domain: str) -> None:
        if domain not in self.model.opset_versions:
            opsets = [*self.model.opsets, OpsetAttr.of(domain, 1)]
            self.model.properties["opsets"] = ArrayAttr(opsets)

    def array(self, value: SSAValue) -> Array:
        """The elements of a value for which `is_constant` holds."""
        owner = value.owner
        if isinstance(owner, Initializer):
            return owner.array(self.store)
        assert isinstance(owner, OnnxOp), "a constant has no block arguments"
        given = {operand: self.array(operand) for operand in owner.operands}
        found = evaluate_node(owner, given, self.store, self.model.opset_versions)
        assert found is not None, f"{owner.op_type} of constants has a value"
        array: Array = found[owner.output_values().index(value)]
        return array

    def substitute(self, op: OnnxOp, value: SSAValue) -> None:
        """Replaces a node with one result by a new value, which takes its name."""
        made, result = value.owner, op.results[0]
        assert isinstance(made, OnnxOp), "nodes replace nodes"
        made.attributes["outputs"] = op.attributes["outputs"]
        value.name_hint = result.name_hint
        result.replace_all_uses_with(value)
        op.detach()
        op.erase()

    def redirect(self, value: SSAValue, rounded: SSAValue) -> None:
        """
        Makes all readers of a value read its rounded form; outputs of the model keep their names.

        Only QuantizeLinear, which rounds it, and FitGrid still read the value.
        """
        source, last = value.owner, rounded.owner
        assert isinstance(source, OnnxOp) and isinstance(last, OnnxOp), "nodes compute both"
        quantizer = last.operands[0].owner
        kept = {quantizer, *(one.owner for one in quantizer.operands)}  # type: ignore[union-attr]
        value.replace_uses_with_if(rounded, lambda use: use.operation not in kept)
        name = value_name(value)
        if name in self.graph.output_names:
            source.attributes["outputs"] = NamesAttr.of([self.fresh(f"{name}_plain")])
            last.attributes["outputs"] = NamesAttr.of([name])

    def after(self, value: SSAValue) -> Operation:
        """The operation before which nodes on a value are inserted."""
        op = value.owner
        found = op.next_op if isinstance(op, Operation) else self.graph.block.first_op
        while isinstance(found, Initializer):
            found = found.next_op
        assert found is not None, "a graph ends with its outputs"
        return found

    def dequantized(
        self,
        name: str,
        whole: Array,
        scale: SSAValue,
        zero: SSAValue | None,
        **attributes: object,
    ) -> SSAValue:
        """Adds DequantizeLinear of a constant; attributes that are None are left out."""
        held = self.constant(f"{name}_quantized", whole)
        given = {key: one for key, one in attributes.items() if one is not None}
        inputs = [held, scale] if zero is None else [held, scale, zero]
        return self.node(
            "DequantizeLinear", inputs, f"{name}_dequantized", self.after(held), given
        )[0]


def set_operand(op: OnnxOp, number: int, value: SSAValue) -> None:
    """Sets an entry of a node's list of inputs that is present."""
    before = op.input_values()[:number]
    op.operands[sum(one is not None for one in before)] = value


def with_inputs(op: OnnxOp, inputs: Sequence[SSAValue | None]) -> OnnxOp:
    """Replaces a node by one with another list of inputs."""
    types = [UNKNOWN if value is None else value.type for value in op.output_values()]
    extra = {key: held for key, held in op.attributes.items() if key != "outputs"}
    made = type(op).make(inputs, op.onnx_attributes(), {}, op.output_names, types, extra)  # type: ignore[attr-defined]
    replace_op(op, made)
    found: OnnxOp = made
    return found
