"""Splits classifiers with string labels into a numeric classifier and a LabelEncoder."""

from __future__ import annotations

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, i64
from xdsl.ir import Attribute

from popgraph.dialects.onnx.containers import Model, model_of
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.schemas import op_class
from popgraph.dialects.onnx.types import NamesAttr, dims, tensor_type
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.support.names import hint

DOMAIN = "ai.onnx.ml"
NAMES = "classlabels_strings"
NUMBERS = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}
"""Classifiers, and the attribute of each that holds integer labels."""


def number_labels(module: ModuleOp) -> None:
    """
    `label, score = Classifier(x)`  ->  `n, score = Classifier(x); label = LabelEncoder(n)`

    Only for string labels that are an output of the node. The classifier is then compiled, and the
    host computes strings only.
    """
    model = model_of(module)
    for op in list(model.graph.walk()):
        if isinstance(op, SchemaOp) and _is_named(op):
            _number(model, op)


def _is_named(op: OnnxOp) -> bool:
    if op.domain != DOMAIN or op.op_type not in NUMBERS or op.output_values()[0] is None:
        return False
    names = op.onnx_attributes().get(NAMES)
    return isinstance(names, NamesAttr) and bool(names.data)


def _number(model: Model, op: SchemaOp) -> None:
    names = op.onnx_attributes()[NAMES]
    assert isinstance(names, NamesAttr)
    places = DenseArrayBase.from_list(i64, range(len(names.data)))
    label = op.output_values()[0]
    assert label is not None, "only where there are labels"
    name = op.output_names[0]
    numbers = tensor_type(i64, dims(label.type))
    kept = {key: held for key, held in op.onnx_attributes().items() if key != NAMES}
    classifier = type(op).make(
        op.input_values(),
        {**kept, NUMBERS[op.op_type]: places},
        {},
        [f"{name}/number", *op.output_names[1:]],
        [numbers, *[value.type for value in op.results[1:]]],
        {key: held for key, held in op.attributes.items() if key != "outputs"},
    )
    number = classifier.results[0]
    encoder = op_class("LabelEncoder", model.opset_versions[DOMAIN], DOMAIN)
    table: dict[str, Attribute] = {"keys_int64s": places, "values_strings": names}
    named = encoder.make(
        [number],
        {"classes_strings": names} if encoder.SCHEMA.since_version == 1 else table,
        {},
        [name],
        [label.type],
        {},
    )
    insert_made_for(op, classifier, named)
    for old, new in zip(op.results, [named.results[0], *classifier.results[1:]], strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    number.name_hint = hint(f"{name}/number")
    op.detach()
    op.erase()
