"""Tests language models of Hugging Face and of GGUF files as `.pgraph` texts."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.builder.architectures import model_text, open_language_model
from popgraph.builder.architectures.texts import architecture_text
from popgraph.builder.pgraph.print.formatter import format_text
from popgraph.cli import app
from popgraph.compiler import load
from popgraph.compiler.saving import save_language_model, save_model
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError, WriteError
from tests.builder.small_language_models import (
    MODELS,
    config_of,
    gguf,
    weights_of,
    write_folder,
    write_gguf,
    write_safetensors,
)

TOKENS = [3, 14, 15, 9, 2, 6]
LOGITS = {
    "llama": [-1.41623, -1.97619, 0.82333, 1.94863, -0.23742],
    "mistral": [1.37652, 2.54941, 0.58659, -2.47733, -0.98994],
    "qwen2": [-0.05061, -0.43881, -0.54416, 0.61760, 0.54191],
    "qwen3": [0.94141, 2.05499, -0.11297, -1.86354, -0.58588],
    "gemma": [2.25625, 1.81147, 1.81794, -3.18059, -2.98940],
    "gemma2": [-1.93727, 2.59256, 0.79445, -0.09738, 0.04710],
    "gemma3_text": [-3.93223, 1.83869, 0.73520, 2.91710, 2.31815],
}
"""The first logits after `TOKENS`, which transformers 5.24 computes from the same folders."""

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3")


def logits(model: object, backend: str = "reference") -> Array:
    """The logits after `TOKENS`, without a past."""
    run = popgraph.compile(model, backend=backend)
    ids = np.array([TOKENS])
    past = {
        name: np.zeros((1, spec.shape[1], 0, spec.shape[3]), np.float32)
        for name, spec in run.inputs.items()
        if name.startswith("past")
    }
    positions = np.arange(len(TOKENS))[None]
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": positions}
    found: Array = run(**given, **past)["logits"][0, -1]
    return found


@pytest.mark.budget(4)
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    model = open_language_model(write_folder(tmp_path / "model", name))
    np.testing.assert_allclose(logits(model)[:5], LOGITS[name], atol=2e-5)


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text"])
def test_a_gguf_file_has_the_weights_of_the_folder(tmp_path: Path, name: str) -> None:
    """Names, rows and norms are those of Hugging Face; numbers missing in GGUF are not compared."""
    found = open_language_model(write_gguf(tmp_path / "model.gguf", name))
    expected = open_language_model(write_folder(tmp_path / "model", name))
    assert set(found.checkpoint) == set(expected.checkpoint)
    for one in found.checkpoint:
        arrays = found.checkpoint.read(one), expected.checkpoint.read(one)
        np.testing.assert_allclose(*arrays, rtol=1e-6, atol=1e-6)
    differing = {
        key
        for key, value in expected.configuration.values.items()
        if found.configuration.values[key] != pytest.approx(value)
    }
    assert differing <= {"rope_factors", "scale", "near_theta", "period"}


def test_a_gguf_file_states_its_rotary_embeddings(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", "qwen2")
    content = path.read_bytes()
    assert open_language_model(path).configuration.values["theta"] == 100
    path.write_bytes(content.replace(b"qwen2.rope.freq_base", b"qwen2.rope.freq_bass"))
    assert open_language_model(path).configuration.values["theta"] == 10_000


def test_generation_with_a_cache_is_that_without(tmp_path: Path) -> None:
    """A padded cache does not change tokens, although Mistral's layers have a window."""
    model = open_language_model(write_folder(tmp_path / "model", "mistral"))
    found, expected = (
        popgraph.generate(model, TOKENS, 4, max_length=16, cache=cache, backend="reference")
        for cache in (True, False)
    )
    assert found.tolist() == expected.tolist()
    assert len(set(found.tolist())) > 1


@pytest.mark.parametrize("name", ["decoder", *ARCHITECTURES])
def test_texts_of_the_package_are_formatted(name: str) -> None:
    text = architecture_text(name)
    assert format_text(text) == text
    assert len(text.splitlines()) < 90


def test_a_converted_text_is_a_model_with_its_weights(tmp_path: Path) -> None:
    """The text lists the configuration, and imports nothing."""
    model = open_language_model(write_folder(tmp_path / "model", "qwen3"))
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "qwen.pgraph"
    told = save_language_model(path, model)
    assert told == f"the weights are in {path.with_suffix('.safetensors')}"
    text = path.read_text()
    assert "let theta = 100.0\n" in text and "import" not in text and "numbers" not in text
    assert '@weights("qwen.safetensors")\ngraph qwen3(' in text
    assert format_text(text) == text
    np.testing.assert_array_equal(logits(path), logits(model))


def test_a_text_loads_weights_in_its_folder_in_place(tmp_path: Path) -> None:
    for path in (write_folder(tmp_path / "a", "gemma"), write_gguf(tmp_path / "a.gguf", "gemma")):
        target = tmp_path / "model.pgraph"
        assert save_language_model(target, open_language_model(path)) == ""
        assert '@weights("a' in target.read_text()
    assert {one.name for one in tmp_path.iterdir()} == {"a", "a.gguf", "model.pgraph"}


def test_a_decoder_of_a_model_that_sees_images_is_read(tmp_path: Path) -> None:
    """Names have a prefix, and the configuration is an inner one; the copy has neither."""
    folder = write_folder(tmp_path / "model", "gemma3_text")
    config = config_of("gemma3_text")
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": config}))
    arrays = weights_of(config)
    named = {
        name.replace("model.", "model.language_model.", 1): one for name, one in arrays.items()
    }
    named["vision_tower.w"] = np.zeros(3, np.float32)
    write_safetensors(folder / "model.safetensors", named)
    model = open_language_model(folder)
    assert set(model.checkpoint) == {*arrays, "vision_tower.w"}
    told = save_language_model(tmp_path / "gemma.pgraph", model)
    assert told == f"the weights are in {tmp_path / 'gemma.safetensors'}"
    before = (folder / "model.safetensors").read_bytes()
    told = save_language_model(folder / "model.pgraph", model)
    assert told == f"the weights are in {folder / 'model-decoder.safetensors'}"
    assert (folder / "model.safetensors").read_bytes() == before
    assert popgraph.to_pgraph(folder / "model.pgraph", whole=False)


def test_a_part_of_a_gguf_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "part.gguf").write_bytes(gguf({"split.count": 3}, {}))
    with pytest.raises(ModelError, match="one of 3 parts; llama-gguf-split --merge"):
        open_language_model(tmp_path / "part.gguf")


def test_an_onnx_file_of_more_than_two_gigabytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popgraph.compiler.saving.MOST_BYTES", 1000)
    module, compilation = load(write_folder(tmp_path / "model", "qwen2"))
    with pytest.raises(WriteError, match=r"an ONNX file holds less than 2"):
        save_model(tmp_path / "q.onnx", module, compilation)


def test_shards_become_one_file(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", "qwen2")
    arrays = {
        name: one.astype(ml_dtypes.bfloat16) for name, one in weights_of(config_of("qwen2")).items()
    }
    exact = {name: one.astype(np.float32) for name, one in arrays.items()}
    write_safetensors(folder / "model.safetensors", exact)
    expected = logits(folder)
    (folder / "model.safetensors").unlink()
    shards = {}
    for at, names in enumerate((list(arrays)[::2], list(arrays)[1::2])):
        write_safetensors(folder / f"m{at}.safetensors", {one: arrays[one] for one in names})
        shards |= dict.fromkeys(names, f"m{at}.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    model = open_language_model(folder)
    save_language_model(tmp_path / "whole.pgraph", model)
    assert "`model.norm/weight/stored`: bf16[16]" in str(
        popgraph.to_pgraph(tmp_path / "whole.pgraph", whole=False)
    )
    np.testing.assert_array_equal(logits(tmp_path / "whole.pgraph"), expected)
    shards["model.norm.weight"] = "../m0.safetensors"
    index.write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(ModelError, match="outside the folder"):
        open_language_model(folder)


WRONG = {
    "model_type": ({"model_type": "qwen"}, "no text for the architecture 'qwen'", "'qwen3'"),
    "rope": ({"rope_scaling": {"rope_type": "yarn"}}, "type 'yarn'", "default, linear and llama3"),
    "activation": ({"hidden_act": "relu"}, "the activation 'relu'", "silu"),
    "missing": ({"hidden_size": None}, "hidden_size is missing, not an integer", ""),
    "negative": ({"num_hidden_layers": -1}, "num_hidden_layers is -1, not an integer", ""),
    "heads": ({"num_key_value_heads": 3}, "4 heads of size 8 cannot share 3", "multiple"),
    "infinite": ({"rms_norm_eps": float("inf")}, "rms_norm_eps is inf, not a number from 0", ""),
    "none": ({"num_attention_heads": 0}, "0 heads of size 8 cannot share", ""),
    "large": ({"rms_norm_eps": 10**400}, "not a number from 0 on", ""),
    "kinds": ({"layer_types": 3}, "layer_types is 3, not a list of 1 kinds", ""),
    "factor": ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor is 0, not a num", ""),
    "part": ({"partial_rotary_factor": 0.5}, "a part of each head", ""),
    "shape": ({"hidden_size": 32}, "the file holds float32 of shape", ""),
    "huge": ({"num_hidden_layers": 10**9}, "expands to too much", ""),
    "deeper": ({"num_hidden_layers": 2}, "holds no array 'model.layers.1", "model.layers.0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_configuration_is_reported(tmp_path: Path, case: str) -> None:
    fields, what, hint = WRONG[case]
    folder = write_folder(tmp_path / "model", "qwen2")
    (folder / "config.json").write_text(json.dumps(config_of("qwen2", **fields)))
    with pytest.raises(popgraph.PopgraphError, match=what) as caught:
        open_language_model(folder)
    assert hint in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "{", '{"model_type": ' + "[" * 5000, "\0"])
def test_a_damaged_configuration_is_reported(tmp_path: Path, content: str) -> None:
    folder = write_folder(tmp_path / "model", "qwen2")
    (folder / "config.json").write_text(content)
    with pytest.raises(ModelError, match="configuration"):
        open_language_model(folder)


def test_model_text_writes_lists_and_booleans(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", "llama")
    configuration = open_language_model(folder).configuration
    text = model_text(configuration, 'a"b.safetensors')
    assert "let biased = true\n" in text
    assert "let rope_factors = [1.0, " in text
    assert '@weights("a\\"b.safetensors")' in text


def test_the_command_converts_and_refuses(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", "qwen2")
    (tmp_path / "empty").mkdir()
    run = CliRunner()
    target = str(tmp_path / "q.pgraph")
    done = run.invoke(app, ["convert", str(tmp_path / "model.gguf"), target])
    assert done.exit_code == 0, done.output
    assert run.invoke(app, ["check", target]).exit_code == 0
    assert run.invoke(app, ["convert", target, str(tmp_path / "q.onnx")]).exit_code == 0
    run_of_onnx = popgraph.compile(tmp_path / "q.onnx", backend="reference")
    assert "past_key_values.0.key" in run_of_onnx.inputs
    refused = run.invoke(app, ["convert", str(tmp_path / "empty"), target])
    assert refused.exit_code == 1
    assert "this is a folder, not a model" in refused.output
    assert "config.json" in refused.output
