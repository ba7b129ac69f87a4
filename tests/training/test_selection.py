"""Tests the selection of trained weights: the rule, name patterns, the table, and the cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from typer.testing import CliRunner
from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.onnx.read import import_model
from popgraph.cli import app
from popgraph.compiler import lower
from popgraph.dialects.program import ConstantOp, UpdateOp, VariableOp
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.training.add_optimizer import AddOptimizer
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.support.errors import ModelError
from popgraph.training.roles import KIND
from popgraph.training.selection import Selection, Weight, WeightPatterns, select

TEXT = """<ir_version: 8, opset_import: ["" : 15], producer_name: "PRODUCER">
g (float[4, 2] x) => (float loss, float[4, 3] other)
<float[2, 3] "fc.weight" = {1, 2, 3, 4, 5, 6}, float[3] "fc.bias" = {0, 1, 2},
 float[3] "bn.weight" = {1, 2, 1}, float[3] "bn.bias" = {1, 2, 1},
 float[3] "bn.mean" = {0, 1, 0}, float[3] "bn.var" = {1, 2, 1}, float temperature = {2},
 float[3, 3] "onnx::MatMul_7" = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[3] "onnx::Mul_8" = {1, 2, 3},
 float "least" = {-1}, float "most" = {1}, int64[2] shape = {4, 3}, float[3] aside = {1, 2, 3},
 float[3] unread = {1, 2, 3}>
{
  h = Gemm (x, "fc.weight", "fc.bias")
  b = BatchNormalization (h, "bn.weight", "bn.bias", "bn.mean", "bn.var")
  c = Clip (b, least, most)
  m = MatMul (c, "onnx::MatMul_7")
  s = Mul (m, "onnx::Mul_8")
  t = Mul (s, temperature)
  r = Reshape (t, shape)
  other = Add (r, aside)
  q = Mul (r, r)
  loss = ReduceSum<keepdims = 0> (q)
}"""
ALWAYS = {"fc.weight", "fc.bias", "bn.weight", "bn.bias", "temperature", "onnx::MatMul_7"}
STATISTICS = ("bn.mean", "bn.var")


def proto(producer: str = "pytorch") -> onnx.ModelProto:
    """The model of `TEXT`; quoted names are replaced, since ONNX's parser refuses them."""
    plain = TEXT.replace("PRODUCER", producer)
    names = {}
    for number, name in enumerate(dict.fromkeys(plain.split('"')[1::2])):
        if name not in ("", producer):
            names[f"quoted{number}"] = name
            plain = plain.replace(f'"{name}"', f"quoted{number}")
    made = parser.parse_model(plain)
    for held in made.graph.initializer:
        held.name = names.get(held.name, held.name)
    for node in made.graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)
    return made


def read(producer: str = "pytorch") -> tuple[ModuleOp, Compilation]:
    compilation = Compilation()
    return import_model(proto(producer), compilation.weights), compilation


def selected(producer: str = "pytorch", patterns: WeightPatterns | None = None) -> Selection:
    return select(read(producer)[0], "loss", patterns)


def reasons(selection: Selection) -> dict[str, str]:
    return {one.name: one.reason for one in selection.weights if one.reason}


def test_weights_are_trained_and_constants_of_exporters_are_not() -> None:
    found = selected()
    assert set(found.trained) == ALWAYS
    assert found.statistics == STATISTICS
    assert reasons(found) == {
        **dict.fromkeys(STATISTICS, "running statistics"),
        "onnx::Mul_8": "a constant of the exporter",
        "least": "a setting of Clip",
        "most": "a setting of Clip",
        "shape": "no floats",
        "aside": "the loss does not depend on it",
        "unread": "nothing reads it",
    }
    assert set(found.frozen) == {"onnx::Mul_8", "least", "most", "aside", "unread"}


def test_scalars_of_other_exporters_are_not_trained() -> None:
    assert set(selected("tf2onnx").trained) == ALWAYS - {"temperature"}


def test_without_an_exporter_all_weights_are_trained() -> None:
    assert set(selected("").trained) == ALWAYS | {"onnx::Mul_8"}


def test_buffers_are_known_from_metadata_of_the_exporter() -> None:
    """PyTorch's newer exporter notes the kind of each tensor, except for constants of its own."""
    made = proto()
    for name, kind in (("temperature", "PARAMETER"), ("fc.bias", "BUFFER")):
        info = made.graph.value_info.add()
        info.name = name
        info.type.tensor_type.elem_type = 1
        info.metadata_props.add(key=KIND, value=kind)
    made.graph.node[4].input[1] = made.graph.initializer[8].name = "mul_made"
    compilation = Compilation()
    found = select(import_model(made, compilation.weights), "loss")
    assert set(found.trained) == ALWAYS - {"fc.bias"}
    assert reasons(found)["fc.bias"] == "a buffer of the module"
    assert reasons(found)["mul_made"] == "a constant of the exporter"


def test_patterns_override_the_rule() -> None:
    found = selected(patterns=WeightPatterns(freeze=("bn.*",)))
    assert set(found.trained) == ALWAYS - {"bn.weight", "bn.bias"}
    assert not found.statistics and reasons(found)["bn.mean"] == "frozen"
    found = selected(
        patterns=WeightPatterns(train_only=("fc.*", "least", "onnx::Mul_?"), freeze=("*.bias",))
    )
    assert set(found.trained) == {"fc.weight", "least", "onnx::Mul_8"}
    assert reasons(found)["temperature"] == "not among train_only" and not found.statistics


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (
            WeightPatterns(freeze=("fc.wieght",)),
            "no weight matches the pattern 'fc.wieght'\n  at: freeze\n"
            "  try: did you mean 'fc.weight'?",
        ),
        (
            WeightPatterns(train_only=("fc.*", "%%%")),
            "pattern '%%%'\n  at: train_only\n  try: its weights",
        ),
    ],
)
def test_a_pattern_that_names_nothing_is_an_error(patterns: WeightPatterns, said: str) -> None:
    with pytest.raises(ModelError) as caught:
        selected(patterns=patterns)
    assert said in str(caught.value)


def test_nothing_to_train_is_an_error() -> None:
    with pytest.raises(ModelError, match="no weights are left to train"):
        selected(patterns=WeightPatterns(freeze=("*",))).check()
    selected().check()


def test_the_table_has_counts_and_reasons() -> None:
    weights = (
        Weight("a", (1000, 2), "trained"),
        Weight("b", (), "trained"),
        Weight("c", (3,), "not trained", "frozen"),
    )
    assert str(Selection(weights)) == (
        "trained      2 tensors  2,001 values\nnot trained  1 tensor   3 values      frozen"
    )


def gradients(frozen: tuple[str, ...], *, variables: bool = False) -> tuple[ModuleOp, set[str]]:
    """The graph of a training step, and the names of its variables."""
    module, compilation = read()
    training = Training("loss", SGD(Scalar(0.1)), frozen=frozen)
    options = Options(training=training, variables=variables)
    lower(module, compilation, options, until=AddOptimizer.name)
    return module, {op.variable.text for op in module.walk() if isinstance(op, VariableOp)}


def count(module: ModuleOp) -> int:
    return sum(not isinstance(op, ConstantOp) for op in module.walk())


def test_a_frozen_weight_costs_no_gradient() -> None:
    """Layers before the first trained weight are not differentiated."""
    everything, variables = gradients(())
    assert {"fc.weight", "fc.bias", "bn.mean"} <= variables
    trunk = ("fc.weight", "fc.bias", "bn.weight", "bn.bias", *STATISTICS, "least", "most")
    head, left = gradients(trunk)
    assert not left & set(trunk) and "onnx::MatMul_7" in left
    names = [op.name for op in head.walk()]
    assert "graphcore.batch_norm_train" in {op.name for op in everything.walk()}
    assert names.count("graphcore.batch_norm") == 1
    forward = 2  # plus one gradient: of the head's weight, but not of its input
    assert names.count("graphcore.mat_mul") == forward + 1
    assert count(head) < count(everything) - 10


def test_frozen_weights_stay_variables_for_the_host() -> None:
    module, variables = gradients(("fc.weight",), variables=True)
    updated = {op.variable.text for op in module.walk() if isinstance(op, UpdateOp)}
    assert "fc.weight" in variables - updated and {"fc.bias", "bn.mean"} <= updated


def test_popgraph_train_lists_trained_weights(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(proto(), path)
    np.save(tmp_path / "x.npy", np.random.default_rng(1).normal(size=(8, 2)).astype(np.float32))
    said = ["--loss", "loss", "--optimizer", "SGD(0.001)", "--batch", "4"]
    arguments = ["train", str(path), f"x={tmp_path / 'x.npy'}", *said]
    target = tmp_path / "trained.onnx"
    options = ["--freeze", "fc.*", "--freeze", "bn.*", "-o", str(target)]
    result = CliRunner().invoke(app, [*arguments, *options])
    assert result.exit_code == 0, result.output
    assert "trained      2 tensors  10 values\n" in result.output
    assert "not trained  6 tensors  21 values  frozen\n" in result.output
    before, after = (
        {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
        for model in (proto(), onnx.load(target))
    )
    changed = {name for name in after if not np.array_equal(before[name], after[name])}
    assert changed == {"temperature", "onnx::MatMul_7"}
    result = CliRunner().invoke(app, [*arguments, "--train-only", "fd.*"])
    assert result.exit_code == 1 and "no weight matches the pattern 'fd.*'" in result.output
    result = CliRunner().invoke(app, [*arguments, "--freeze", "*"])
    assert result.exit_code == 1 and "no weights are left to train" in result.output
