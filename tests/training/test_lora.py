"""Tests low-rank adapters: their form, their training, their files, and their merged form."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper, parser
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.compiler import load, lower
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.support.arrays import Array
from popgraph.support.errors import ArgumentError, ModelError, PopgraphError, TypeMismatchError
from popgraph.training.trainer import Trainer
from tests.builder.small_language_models import Q4_K, gguf, random_blocks

NET = """
graph net(x: f32[N, 2, 6, 6]) -> (y: f32[N, 3]) {
    weight `conv.weight`: f32[4, 2, 3, 3] = he_normal(seed=1)
    weight `bn.mean`: f32[4] = zeros
    weight `bn.var`: f32[4] = ones
    weight `bn.scale`: f32[4] = ones
    weight `bn.shift`: f32[4] = zeros
    weight `fc1.weight`: f32[10, 4] = glorot_uniform(seed=2)
    weight `fc2.weight`: f32[10, 9] = glorot_uniform(seed=3)
    weight `head.weight`: f32[9, 3] = glorot_uniform(seed=4)
    weight `head.bias`: f32[3] = zeros
    c = Conv(x, `conv.weight`, pads=[1, 1, 1, 1], strides=[2, 2])
    h = Tanh(BatchNormalization(c, `bn.scale`, `bn.shift`, `bn.mean`, `bn.var`))
    p = ReduceMean(h, [2], keepdims=0) |> Transpose(perm=[0, 2, 1])
    f = Tanh(p @ Transpose(`fc1.weight`, perm=[1, 0]))
    g = Tanh(f @ `fc2.weight`)
    y = Gemm(ReduceSum(g, [1], keepdims=0), `head.weight`, `head.bias`)
}

train (target: f32[N, 3]) {
    loss = mse(y, target)
    optimizer = Adam(0.01, epsilon=0.00000001)
}
"""
LAYERS = ["conv.weight", "fc*", "head.weight"]
STEPS, BATCH = 6, 8


@pytest.fixture(scope="module")
def data() -> dict[str, Array]:
    generator = np.random.default_rng(0)
    size = STEPS * BATCH
    return {
        "x": generator.normal(size=(size, 2, 6, 6)).astype(np.float32),
        "target": generator.normal(size=(size, 3)).astype(np.float32),
    }


@pytest.fixture(scope="module")
def trainer(data: dict[str, Array]) -> Trainer:
    """A trainer of adapters after one epoch."""
    model = popgraph.lora(NET, 2, LAYERS, alpha=3, seed=7)
    return popgraph.train(model, data, batch=BATCH, shuffle=False)


def outputs(model: object, data: dict[str, Array]) -> Array:
    found: Array = popgraph.compile(model, backend="reference")(x=data["x"])["y"]
    return found


def test_new_adapters_change_no_output(data: dict[str, Array]) -> None:
    model, plain = popgraph.lora(NET, rank=2, layers=LAYERS, alpha=3), outputs(NET, data)
    np.testing.assert_array_equal(outputs(popgraph.lora(NET, 2), data), plain)
    # The adapter of the convolution keeps its batch normalization from being folded.
    np.testing.assert_allclose(outputs(model, data), plain, atol=1e-6)
    assert [(one.name, one.rank, one.scale) for one in model.adapters] == [
        (name, 2, 1.5) for name in ("conv.weight", "fc1.weight", "fc2.weight", "head.weight")
    ]
    assert "134 values of adapters" in str(model)


def test_the_default_is_each_matrix_that_is_larger_than_its_adapter() -> None:
    assert [one.name for one in popgraph.lora(NET, rank=2).adapters] == [
        "fc1.weight",
        "fc2.weight",
        "head.weight",
    ]
    assert [one.name for one in popgraph.lora(NET).adapters] == ["fc2.weight"]


def test_first_values_depend_on_seed_and_name_alone() -> None:
    def first(*layers: str, seed: int = 0) -> Array:
        made = popgraph.lora(NET, 2, layers, seed=seed)
        found = next(one for one in made.adapters if one.name == "fc2.weight")
        factors = found.factors(made.weights)
        assert not factors.b.any() and np.abs(factors.a).max() <= 10**-0.5
        return factors.a

    np.testing.assert_array_equal(first("fc2.weight"), first("fc*"))
    assert (first("fc*") != first("fc*", seed=1)).all()


def test_steps_equal_those_of_pytorch(trainer: Trainer, data: dict[str, Array]) -> None:
    """A LoRA network written by hand, with the same values, has the same losses and adapters."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    start = popgraph.lora(NET, 2, LAYERS, alpha=3, seed=7)
    weights = weights_by_name(model_of(start.read).graph)
    held = {name: torch.tensor(np.array(one.array(start.weights))) for name, one in weights.items()}
    adapters = {name: one.requires_grad_() for name, one in held.items() if "lora" in name}
    optimizer = torch.optim.Adam(adapters.values(), lr=0.01, eps=1e-8)

    def linear(x: object, name: str, weight: object) -> object:
        a, b = (adapters[f"{name}.lora_{one}.weight"] for one in "AB")
        return x @ weight + 1.5 * ((x @ a.T) @ b.T)  # type: ignore[operator]

    losses = []
    for at in range(STEPS):
        rows = slice(at * BATCH, (at + 1) * BATCH)
        x, target = (torch.tensor(data[name][rows]) for name in ("x", "target"))
        c = torch.conv2d(x, held["conv.weight"], stride=2, padding=1)
        low = torch.conv2d(x, adapters["conv.lora_A.weight"], stride=2, padding=1)
        c = c + 1.5 * torch.conv2d(low, adapters["conv.lora_B.weight"])
        h = torch.tanh(c / (1 + 1e-5) ** 0.5)
        p = h.mean(2).transpose(1, 2)
        f = torch.tanh(linear(p, "fc1", held["fc1.weight"].T))
        g = torch.tanh(linear(f, "fc2", held["fc2.weight"]))
        y = linear(g.sum(1), "head", held["head.weight"]) + held["head.bias"]
        loss = ((y - target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    found = [row["loss"] for row in trainer.history.steps]
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    for name, one in adapters.items():
        np.testing.assert_allclose(
            trainer.weights()[name], one.detach().numpy(), rtol=1e-4, atol=1e-6
        )


def test_only_adapters_are_trained(trainer: Trainer) -> None:
    """The base, with its running statistics, is constant; the optimizer has no state for it."""
    selection = trainer.selection
    assert len(selection.trained) == 8 and all("lora" in name for name in selection.trained)
    assert not selection.statistics
    assert {one.reason for one in selection.weights if one.fate == "not trained"} == {
        "the model has LoRA adapters"
    }
    variables = replace(trainer.request(), backend="reference").executable().variables
    assert len(variables) == 8 * 4  # Adam has two moments and a step count for each.
    assert all("lora" in name for name in variables)


def test_patterns_choose_what_is_trained_beside_adapters(data: dict[str, Array]) -> None:
    model = popgraph.lora(NET, 2, "fc2.weight")
    made = popgraph.Trainer(model, train_only=["*lora*", "head.bias"], backend="reference")
    made.prepare(data, batch=BATCH)
    names = {"fc2.lora_A.weight", "fc2.lora_B.weight", "head.bias"}
    assert set(made.selection.trained) == names


def test_new_adapters_raise_no_false_alarm(data: dict[str, Array]) -> None:
    """In the first step, the gradient of A is zero, because B is."""
    made = popgraph.Trainer(popgraph.lora(NET, 2), backend="reference")
    first = {name: one[:BATCH] for name, one in data.items()}
    assert made.check(first).problems == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.fit(first, batch=BATCH)


def test_merged_models_compute_the_same(
    trainer: Trainer, data: dict[str, Array], tmp_path: Path
) -> None:
    expected = np.asarray(trainer.predict(data["x"]))
    assert np.abs(expected - outputs(NET, data)).max() > 0.01
    trainer.save(tmp_path / "tuned.onnx")
    trainer.save(tmp_path / "tuned.pgraph")
    for model in (trainer, tmp_path / "tuned.onnx", tmp_path / "tuned.pgraph"):
        merged = popgraph.merge_lora(model)
        np.testing.assert_allclose(outputs(merged, data), expected, atol=1e-5)
        assert not merged.adapters and "lora" not in str(popgraph.to_pgraph(merged))
        assert weights_by_name(model_of(merged.read).graph).keys() == (
            weights_by_name(model_of(popgraph.lora(NET, 2).read).graph).keys()
            - {f"{one}.lora_{which}.weight" for one in ("fc1", "fc2", "head") for which in "AB"}
        )


def test_a_text_keeps_its_train_section(data: dict[str, Array]) -> None:
    adapted = popgraph.lora(NET, 2)
    for model in (adapted, popgraph.merge_lora(adapted)):
        made = popgraph.Trainer(model, backend="reference")
        made.prepare(data, batch=BATCH)
        assert made.optimizer == "Adam(learning_rate=0.01, epsilon=1e-08)"


@pytest.mark.parametrize("kind", ["file", "folder", "mapping"])
def test_saved_adapters_fit_a_fresh_base(
    trainer: Trainer, data: dict[str, Array], tmp_path: Path, kind: str
) -> None:
    expected = np.asarray(trainer.predict(data["x"]))
    path = tmp_path / ("adapters.safetensors" if kind == "file" else "peft")
    popgraph.save_lora(trainer, path)
    if kind == "mapping":
        weights = {name: one for name, one in trainer.weights().items() if "lora" in name}
        model = popgraph.load_lora(NET, weights, alpha=3)
    else:
        model = popgraph.load_lora(NET, path)
    assert [(one.rank, one.scale) for one in model.adapters] == [(2, 1.5)] * 4
    np.testing.assert_allclose(outputs(model, data), expected, atol=1e-5)


def test_a_folder_has_the_names_of_peft(trainer: Trainer, tmp_path: Path) -> None:
    popgraph.save_lora(trainer, tmp_path)
    content = (tmp_path / "adapter_model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    header.pop("__metadata__", None)
    shapes = {name: tuple(row["shape"]) for name, row in header.items()}
    prefix = "base_model.model."
    assert shapes[f"{prefix}fc2.lora_A.weight"] == (2, 10)
    assert shapes[f"{prefix}fc2.lora_B.weight"] == (9, 2)
    assert shapes[f"{prefix}conv.lora_A.weight"] == (2, 2, 3, 3)
    assert shapes[f"{prefix}conv.lora_B.weight"] == (4, 2, 1, 1) and len(shapes) == 8
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 2, 3)
    assert config["target_modules"] == ["conv", "fc1", "fc2", "head"]


def test_adapters_of_several_ranks_are_saved(tmp_path: Path) -> None:
    model = popgraph.lora(popgraph.lora(NET, 2, "fc*", alpha=4), 1, "head.weight", alpha=5)
    popgraph.save_lora(model, tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["rank_pattern"] == {"head": 1}
    assert config["alpha_pattern"] == {"head": 5}
    again = popgraph.load_lora(NET, tmp_path)
    expected = {one.name: (one.rank, one.scale) for one in model.adapters}
    assert {one.name: (one.rank, one.scale) for one in again.adapters} == expected


def test_rank_stabilized_scales_are_read(tmp_path: Path) -> None:
    popgraph.save_lora(popgraph.lora(NET, 4, "fc2*", alpha=8), tmp_path)
    config = tmp_path / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "use_rslora": True}))
    assert popgraph.load_lora(NET, tmp_path).adapters[0].scale == 8 / 4**0.5


SHARED = """
graph net(x: f32[N, 4], i: i64[N]) -> y {
    weight tied: f32[6, 4] = glorot_uniform(seed=1)
    weight w: f32[4, 4] = glorot_uniform(seed=2)
    weight both: f32[4, 4] = glorot_uniform(seed=3)
    weight deep: f32[2, 4, 4] = ones
    h = Tanh(x @ w) @ w + tied[i]
    g = (h @ both) @ Transpose(both, perm=[1, 0])
    y = (g @ deep)[0] @ Transpose(tied, perm=[1, 0])
}
"""


def test_a_weight_of_several_products_has_one_adapter() -> None:
    model = popgraph.lora(SHARED, 1)
    (adapter,) = model.adapters
    assert adapter.name == "w" and len(adapter.places) == 2
    factors = {"w.lora_A.weight": np.ones((1, 4)), "w.lora_B.weight": np.ones((4, 1))}
    tuned = popgraph.load_lora(SHARED, factors, alpha=0.5)
    generator = np.random.default_rng(0)
    given = {"x": generator.normal(size=(3, 4)).astype(np.float32), "i": np.array([0, 5, 2])}
    ys = [
        popgraph.compile(one, backend="reference")(**given)["y"]
        for one in (SHARED, tuned, popgraph.merge_lora(tuned))
    ]
    assert np.abs(ys[0] - ys[1]).max() > 0.1
    np.testing.assert_allclose(ys[1], ys[2], atol=1e-5)


@pytest.mark.parametrize(
    ("text", "layers", "said"),
    [
        (SHARED, "tied", "'tied' cannot have an adapter: Gather reads it, too"),
        (SHARED, "both", "one product reads it, and another its transpose"),
        (SHARED, "deep", "it is not the second factor"),
        (NET, "head.bias", "it is not the second factor"),
        (NET, "hed.weight", "did you mean 'head.weight'?"),
        (NET, "nothing", "weights that can have adapters are conv.weight, fc1.weight"),
    ],
)
def test_weights_without_an_adapter_are_reported(text: str, layers: str, said: str) -> None:
    with pytest.raises(ModelError) as caught:
        popgraph.lora(text, 1, layers)
    assert "at: popgraph.lora" in str(caught.value) and said in str(caught.value)


def test_a_second_adapter_is_refused() -> None:
    with pytest.raises(ModelError, match="it has one already"):
        popgraph.lora(popgraph.lora(NET, 1, "fc1*"), 1, "fc1*")
    with pytest.raises(ModelError, match="the matrices of the model have adapters already"):
        popgraph.lora(popgraph.lora(NET, 1), 1)


def test_wrong_arguments_are_reported() -> None:
    wrong: list[dict[str, object]] = [
        {"rank": 0},
        {"rank": 1.5},
        {"layers": []},
        {"layers": [3]},
        {"alpha": "8"},
        {"alpha": float("nan")},
        {"dropout": 1.0},
        {"seed": -1},
        {"ranks": 4},
    ]
    for given in wrong:
        with pytest.raises(ArgumentError):
            popgraph.lora(NET, **given)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="no matrix of the model has more values"):
        popgraph.lora(NET, rank=50)
    for function in (popgraph.merge_lora, lambda model: popgraph.save_lora(model, "a")):
        with pytest.raises(ModelError, match="the model has no LoRA adapters"):
            function(NET)
    with pytest.raises(ArgumentError, match=r"a .safetensors file or a folder, not .bin"):
        popgraph.save_lora(popgraph.lora(NET), "adapters.bin")


def test_models_that_take_no_adapters_are_reported() -> None:
    old = parser.parse_model(
        """<ir_version: 3, opset_import: ["" : 6]>
        g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] w> { y = MatMul (x, w) }"""
    )
    old.graph.initializer.append(numpy_helper.from_array(np.ones((4, 4), np.float32), "w"))
    with pytest.raises(ModelError, match="operator set 6, whose Add does not broadcast"):
        popgraph.lora(old, 1)
    module, compilation = load(SHARED.replace("N", "2"))
    with pytest.raises(ModelError, match="a module of the graphcore level has no weights to adapt"):
        popgraph.lora(lower(module, compilation, level="graphcore"))


def test_wrong_files_are_reported(tmp_path: Path) -> None:
    a, b = np.zeros((1, 10), np.float32), np.zeros((9, 1), np.float32)
    wrong: list[tuple[object, dict[str, object], type[PopgraphError], str]] = [
        ({"fc2.lora_A.weight": a, "fc2.lora_B.weight": b}, {}, ModelError, "the alpha"),
        ({"fc2.lora_A.weight": a}, {"alpha": 1}, ModelError, "has no partner"),
        ({"fc3.lora_A.weight": a}, {"alpha": 1}, ModelError, "did you mean the adapter of 'fc"),
        ({"head.bias.lora_A.weight": a}, {"alpha": 1}, ModelError, "cannot have an adapter"),
        (
            {"fc2.lora_A.weight": a, "fc2.lora_B.weight": b.T},
            {"alpha": 1},
            TypeMismatchError,
            "floats of shape 9x1",
        ),
        ({"fc2.bias": a}, {"alpha": 1}, ModelError, "is not a matrix of an adapter"),
        ({}, {"alpha": 1}, ModelError, "there are no adapters"),
        (tmp_path / "missing.safetensors", {}, ModelError, "cannot be read"),
        (3, {}, ArgumentError, "a file, a folder or a mapping"),
    ]
    for source, given, kind, said in wrong:
        with pytest.raises(kind) as caught:
            popgraph.load_lora(NET, source, **given)  # type: ignore[arg-type]
        assert said in str(caught.value)
    popgraph.save_lora(popgraph.lora(NET, 2), tmp_path)
    config = tmp_path / "adapter_config.json"
    for content, said in (
        ('{"peft_type": "IA3"}', "of the kind IA3"),
        ('{"use_dora": true}', "adapters with use_dora compute another sum"),
        ('{"init_lora_weights": "pissa_niter_4"}', "belong to a changed base"),
        ('{"lora_alpha": "x"}', "lora_alpha must be a number"),
        ('{"lora_alpha": 1, "alpha_pattern": {"fc(1|2)": 2}}', "is not the name of a module"),
        ("[1]", "is not a configuration"),
        ("{", "is not a configuration"),
    ):
        config.write_text(content)
        with pytest.raises(PopgraphError, match=said):
            popgraph.load_lora(NET, tmp_path)


def test_names_of_adapters_with_other_nodes_are_not_merged() -> None:
    text = """
    graph net(x: f32[N, 4]) -> y {
        weight `w.lora_A.weight`: f32[2, 4] = ones
        weight `w.lora_B.weight`: f32[4, 2] = ones
        y = Relu(x @ Transpose(`w.lora_A.weight`)) @ Transpose(`w.lora_B.weight`)
    }
    """
    with pytest.raises(ModelError, match="has the name of an adapter, but not its nodes"):
        popgraph.merge_lora(text)


@pytest.mark.parametrize("form", ["MatMulNBits", "QDQ"])
def test_a_quantized_base_is_trained(form: str) -> None:
    """QLoRA: 4-bit weights are constants; the adapters of f32 fit the float model, too."""
    text = """
    graph net(x: f32[N, 32]) -> y {
        weight a: f32[32, 48] = glorot_uniform(seed=1)
        weight b: f32[48, 32] = glorot_uniform(seed=2)
        y = Tanh(x @ a) @ b
    }
    """
    base = popgraph.quantize(text, mode="weight_only", quant_format=form, measure_errors=False)
    generator = np.random.default_rng(1)
    data = {name: generator.normal(size=(16, 32)).astype(np.float32) for name in ("x", "target")}
    model = popgraph.lora(base.model, 4)
    assert [one.name for one in model.adapters] == ["a", "b"]
    made = popgraph.train(model, data, "mse", "Adam(0.01)", epochs=3, batch=8, backend="reference")
    assert len(made.selection.trained) == 4
    assert made.history["loss"][-1] < made.history["loss"][0]
    tuned = popgraph.load_lora(
        text, {k: v for k, v in made.weights().items() if "lora" in k}, alpha=4
    )
    expected, found = np.asarray(made.predict(data["x"])), outputs(tuned, data)
    assert 0 < np.abs(expected - found).max() < 0.3  # the errors of 4 bits
    if form == "QDQ":
        np.testing.assert_allclose(outputs(popgraph.merge_lora(made), data), expected, atol=1e-5)
    else:
        with pytest.raises(ModelError, match="the packed integers of weight 'a' take no delta"):
            popgraph.merge_lora(made)


def test_halves_have_adapters_of_f32() -> None:
    text = """
    graph net(x: f16[N, 8]) -> y {
        weight w: f16[8, 8] = glorot_uniform(seed=1)
        y = x @ w
    }
    """
    model = popgraph.lora(text, 1)
    assert model.adapters[0].a.array(model.weights).dtype == np.float32
    factors = {"w.lora_A.weight": np.ones((1, 8)), "w.lora_B.weight": np.ones((8, 1))}
    tuned = popgraph.load_lora(text, factors, alpha=0.5)
    x = {"x": np.random.default_rng(0).normal(size=(4, 8)).astype(np.float16)}
    merged = popgraph.merge_lora(tuned)
    assert outputs(merged, x).dtype == np.float16
    np.testing.assert_allclose(outputs(merged, x), outputs(tuned, x), atol=2e-2)


def test_blocks_of_a_file_become_floats_of_the_same_name(tmp_path: Path) -> None:
    blocks = random_blocks(Q4_K, (16, 256), 2)
    (tmp_path / "w.gguf").write_bytes(gguf({"general.architecture": "none"}, {"w": blocks}))
    (tmp_path / "net.pgraph").write_text(
        """
        graph net(x: f32[N, 256]) -> y {
            weight w: f32[16, 256] = load("w.gguf", "w")
            weight h: f16[16, 16] = glorot_uniform
            y = Tanh(x @ Transpose(w, perm=[1, 0])) @ Cast(h, to=f32)
        }
        """
    )
    shapes = {"w": ((1, 256), (16, 1)), "h": ((1, 16), (16, 1))}
    factors = {
        f"{name}.lora_{which}.weight": np.full(shape, 0.1)
        for name, both in shapes.items()
        for which, shape in zip("AB", both, strict=True)
    }
    tuned = popgraph.load_lora(tmp_path / "net.pgraph", factors, alpha=1)
    merged = popgraph.merge_lora(tuned)
    found = weights_by_name(model_of(merged.read).graph)
    assert {name: one.array(merged.weights).dtype for name, one in found.items()} == {
        "w": np.float32,
        "h": np.float16,
    }
    x = {"x": np.random.default_rng(0).normal(size=(2, 256)).astype(np.float32)}
    np.testing.assert_allclose(outputs(merged, x), outputs(tuned, x), atol=2e-3)


def test_constants_of_a_section_stay_constant(data: dict[str, Array]) -> None:
    text = NET.replace("optimizer =", 'freeze "fc*"\n    optimizer =')
    merged = popgraph.merge_lora(popgraph.lora(text, 2))
    made = popgraph.Trainer(merged, backend="reference")
    made.prepare(data, batch=BATCH)
    frozen = {one.name for one in made.selection.weights if one.reason == "frozen"}
    assert frozen == {"fc1.weight", "fc2.weight"} and len(made.selection.trained) == 5


def test_dropout_of_adapters_is_off_in_inference(data: dict[str, Array]) -> None:
    model = popgraph.lora(NET, 2, "fc2.weight", dropout=0.5)
    made = popgraph.Trainer(model, backend="reference")
    made.prepare(data, batch=BATCH)
    assert "drops elements" in str(made.selection)
    factors = {"fc2.lora_A.weight": np.ones((1, 10)), "fc2.lora_B.weight": np.ones((9, 1))}
    plain, dropping = (
        outputs(popgraph.load_lora(NET, factors, alpha=1, dropout=ratio), data)
        for ratio in (0.0, 0.5)
    )
    np.testing.assert_array_equal(dropping, plain)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.output


def test_commands_add_train_save_and_merge(data: dict[str, Array], tmp_path: Path) -> None:
    net, x, target = (tmp_path / name for name in ("net.pgraph", "x.npy", "target.npy"))
    net.write_text(NET)
    np.save(x, data["x"])
    np.save(target, data["target"])
    tuned, saved, merged = (
        tmp_path / name for name in ("tuned.onnx", "adapters.safetensors", "merged.onnx")
    )
    given = [f"x={x}", f"target={target}", "--backend", "reference", "--batch", BATCH]
    printed = run("train", net, *given, "--lora", 2, "--lora-layers", "fc*", "-o", tuned)
    assert "trained      4 tensors" in printed
    run("lora", tuned, "-o", saved)
    run("lora", tuned, "--merge", "-o", merged)
    np.testing.assert_allclose(outputs(merged, data), outputs(tuned, data), atol=1e-5)
    run("lora", net, "--adapters", saved, "--merge", "-o", tmp_path / "again.onnx")
    np.testing.assert_allclose(
        outputs(tmp_path / "again.onnx", data), outputs(merged, data), atol=1e-6
    )
    printed = run("lora", net, "--rank", 2, "-o", tmp_path / "adapted.pgraph")
    assert "fc2.weight" in printed
    for wrong, said in (
        ([net, "-o", tmp_path / "a.onnx"], "one of --rank"),
        ([net, "--merge", "-o", saved], "writes a model"),
        ([net, "--rank", 2, "--adapters", saved, "-o", saved], "saved ones"),
        ([net, "--alpha", 2, "-o", saved], "requires --rank"),
    ):
        result = CliRunner().invoke(app, ["lora", *map(str, wrong)])
        assert result.exit_code == 2 and said in result.output
