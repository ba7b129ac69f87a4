"""Tests `popgraph.load_weights`: weights of files into models, by name."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import popgraph
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError, TypeMismatchError
from tests.builder.small_language_models import Q8_0, gguf, random_blocks, write_safetensors

TEXT = """
def dense(x: f32[N, inputs], outputs) -> y {
    weight `weight`: f32[inputs, outputs] = zeros
    weight bias: f32[outputs] = zeros
    y = x @ `weight` + bias
}

graph net(x: f32[N, 3]) -> y {
    hidden = dense(x, 4)
    y = dense(Relu(hidden), 2)
}
"""
SHAPES = {"hidden.weight": (3, 4), "hidden.bias": (4,), "y.weight": (4, 2), "y.bias": (2,)}


def arrays() -> dict[str, Array]:
    generator = np.random.default_rng(0)
    return {
        name: generator.integers(-4, 5, shape).astype(np.float32) / 4
        for name, shape in SHAPES.items()
    }


def expected(x: Array, weights: dict[str, Array]) -> Array:
    hidden = x @ weights["hidden.weight"] + weights["hidden.bias"]
    result: Array = np.maximum(hidden, 0) @ weights["y.weight"] + weights["y.bias"]
    return result


X = np.random.default_rng(1).integers(-4, 5, (2, 3)).astype(np.float32)


def run(model: object) -> Array:
    found: Array = popgraph.compile(model, backend="reference")(x=X)["y"]
    return found


def write(path: Path, weights: dict[str, Array]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **weights)
    else:
        write_safetensors(path, weights)
    return path


@pytest.mark.parametrize("kind", ["w.safetensors", "w.npz", "mapping", "folder", "bf16"])
def test_weights_are_loaded_by_name(tmp_path: Path, kind: str) -> None:
    """`hidden/weight` of the model is `hidden.weight` of a checkpoint."""
    weights, source = arrays(), object()
    match kind:
        case "mapping":
            source = weights
        case "folder":
            write(tmp_path / "model.safetensors", weights)
            source = str(tmp_path)
        case "bf16":  # Quarters are exact in it.
            narrow = {one: array.astype(ml_dtypes.bfloat16) for one, array in weights.items()}
            source = write(tmp_path / "w.safetensors", narrow)
        case _:
            source = write(tmp_path / kind, weights)
    model = popgraph.load_weights(TEXT, source)
    assert model.loaded == ("hidden/weight", "hidden/bias", "y/weight", "y/bias")
    assert not model.missing and not model.unexpected
    np.testing.assert_array_equal(run(model), expected(X, weights))


def test_a_loaded_model_is_trained_and_written(tmp_path: Path) -> None:
    source = write(tmp_path / "w.safetensors", arrays())
    model = popgraph.load_weights(TEXT, source)
    labels = np.zeros((2, 2), np.float32)
    trainer = popgraph.train(model, (X, labels), "mse", "SGD(0.01)", epochs=3, batch=2)
    losses = trainer.history["loss"]
    assert losses[0] == pytest.approx(np.square(expected(X, arrays())).mean(), rel=1e-5)
    assert losses[-1] < losses[0]
    trainer.save(tmp_path / "net.onnx")
    assert np.square(run(tmp_path / "net.onnx")).mean() < losses[-1]


def test_names_are_mapped_and_matrices_transposed(tmp_path: Path) -> None:
    weights = arrays()
    theirs = {
        "fc1.weight": np.ascontiguousarray(weights["hidden.weight"].T),
        "fc1.bias": weights["hidden.bias"],
        "fc2.weight": np.ascontiguousarray(weights["y.weight"].T),
        "fc2.bias": weights["y.bias"],
    }
    source = write(tmp_path / "w.safetensors", theirs)

    def name(ours: str) -> str:
        part = ours.replace("hidden/", "fc1.").replace("y/", "fc2.")
        return f"{part}.T" if part.endswith("weight") else part

    pairs = {one: name(one) for one in ("hidden/weight", "hidden/bias", "y/weight", "y/bias")}
    for names in (name, pairs):
        model = popgraph.load_weights(TEXT, source, names=names)
        np.testing.assert_array_equal(run(model), expected(X, weights))
        assert model.sources["y/weight"] == "fc2.weight.T"


def test_blocks_become_floats(tmp_path: Path) -> None:
    text = "graph g(x: f32[N, 32]) -> y {\n    weight w: f32[2, 32] = zeros\n    y = x * w[0]\n}\n"
    path = tmp_path / "w.gguf"
    path.write_bytes(gguf({}, {"w": random_blocks(Q8_0, (2, 32), 0)}))
    found = popgraph.load_weights(text, path)
    made = popgraph.compile(found, backend="reference")(x=np.ones((1, 32), np.float32))["y"]
    assert 0.05 < np.abs(made).max() < 1.3


def test_differences_are_errors_or_listed() -> None:
    weights = arrays()
    weights["hiden.weight"] = weights.pop("hidden.weight")
    weights["step"] = np.zeros(1, np.float32)
    with pytest.raises(ModelError) as caught:
        popgraph.load_weights(TEXT, weights)
    assert str(caught.value) == (
        "the names of the weights differ\n"
        "  1 weights of the model that are not in the file:\n"
        "    'hidden/weight' (similar: 'hiden.weight')\n"
        "  2 weights of the file that are not in the model:\n"
        "    'hiden.weight' (similar: 'hidden/weight')\n"
        "    'step'\n"
        "  at: the mapping of weights\n"
        "  try: names={...} maps names of the model to names in the file; strict=False loads the "
        "weights that both have"
    )
    model = popgraph.load_weights(TEXT, weights, strict=False)
    assert model.missing == ("hidden/weight",)
    assert model.unexpected == ("hiden.weight", "step")
    assert len(model.loaded) == 3


def test_other_shapes_are_errors() -> None:
    weights = arrays() | {"y.weight": np.zeros((2, 4), np.float32), "y.bias": np.zeros(2, np.int32)}
    with pytest.raises(TypeMismatchError) as caught:
        popgraph.load_weights(TEXT, weights, strict=False)
    text = str(caught.value)
    assert "'y/weight' is f32[4, 2], but 'y.weight' is float32 of shape 2x4; transpose" in text
    assert "'y/bias' is f32[2], but 'y.bias' is int32 of shape 2" in text
    assert 'names={"w": "fc.weight.T"}' in text


@pytest.mark.parametrize(
    ("names", "what"),
    [
        ({"hidden/weigth": "w"}, "no weight 'hidden/weigth'"),
        ({"hidden/weight": "hiden.weight"}, "no tensor 'hiden.weight', which `names` gives for"),
    ],
)
def test_wrong_names_are_errors(names: dict[str, str], what: str) -> None:
    with pytest.raises(ModelError, match=what) as caught:
        popgraph.load_weights(TEXT, arrays(), names=names)
    assert "did you mean 'hidden" in str(caught.value)


def test_unreadable_sources_are_errors(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    for name in ("a", "b"):
        write(tmp_path / "two" / f"{name}.safetensors", arrays())
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.safetensors").write_bytes(b"\0" * 20)
    twice = b'{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"w":{}}'
    (tmp_path / "twice.safetensors").write_bytes(len(twice).to_bytes(8, "little") + twice)
    index = {"weight_map": {"w": "/etc/passwd"}}
    (tmp_path / "index.json").write_text(json.dumps(index))
    wrong = {
        "two": "several files of weights: a.safetensors, b.safetensors",
        "empty": "the folder has none of",
        "bad.safetensors": "not a .safetensors file",
        "twice.safetensors": "a name occurs twice",
        "index.json": "outside the folder",
        "w.bin": ".bin is not one of .safetensors, .gguf, .npz, .json",
        "none.safetensors": "no such file",
    }
    for name, what in wrong.items():
        with pytest.raises(ModelError, match=what):
            popgraph.load_weights(TEXT, tmp_path / name)
    with pytest.raises(ModelError, match="not int"):
        popgraph.load_weights(TEXT, 3)


def test_shards_of_a_cache_of_hugging_face_are_read(tmp_path: Path) -> None:
    """Its snapshots consist of links to blobs beside them."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    write(blobs / "0a.safetensors", arrays()).rename(blobs / "0a")
    (snapshot / "m.safetensors").symlink_to("../../blobs/0a")
    index = snapshot / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(arrays(), "m.safetensors")}))
    model = popgraph.load_weights(TEXT, snapshot)
    np.testing.assert_array_equal(run(model), expected(X, arrays()))
    (tmp_path / "0b").write_bytes((blobs / "0a").read_bytes())
    (snapshot / "m.safetensors").unlink()
    (snapshot / "m.safetensors").symlink_to("../../0b")
    with pytest.raises(ModelError, match="cannot be read"):
        popgraph.load_weights(TEXT, snapshot)
