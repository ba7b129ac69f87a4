"""Writes SmolLM2-135M with random weights: Hugging Face's folder, `.pgraph`, ONNX and GGUF."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
from smollm import CACHED, EMBEDDING, GGUF, MODEL, NORM, PLAIN, WEIGHTS, Shape

from popgraph.builder.architectures.model import open_language_model
from popgraph.builder.architectures.texts import architecture_text
from popgraph.builder.onnx.write import export_model
from popgraph.builder.pgraph import load
from popgraph.support.arrays import Array
from popgraph.support.safetensors import read_all, safetensors

TEXT = Path(__file__).with_name("arena.pgraph")


def write_folder(shape: Shape, folder: Path) -> None:
    """Writes the model as a folder of Hugging Face and as a text, with weights of std 1/24."""
    generator = np.random.default_rng(0)

    def drawn(one: tuple[int, ...]) -> Array:
        if len(one) == 1:
            return np.ones(one, np.float32)
        array: Array = generator.standard_normal(one, np.float32)
        array *= np.float32(1 / 24)  # SmolLM2's initializer_range
        return array

    arrays = {name: drawn(one) for name, one in shape.weights.items()}
    with (folder / WEIGHTS).open("wb") as file:
        file.writelines(safetensors(arrays))
    (folder / "config.json").write_text(json.dumps(shape.config))
    (folder / "decoder.pgraph").write_text(architecture_text("decoder"))
    (folder / MODEL).write_text(model_text(shape))


def model_text(shape: Shape) -> str:
    """The `.pgraph` text with the numbers of a shape."""
    text = TEXT.read_text()
    for name, value in asdict(shape).items():
        text, found = re.subn(rf"^let {name} = \S+", f"let {name} = {value!r}", text, flags=re.M)
        assert found == 1, f"{TEXT.name} has no {name}"
    return text


def write_onnx(folder: Path) -> None:
    """Writes the model as ONNX: without a cache, and with `past_key_values`."""
    document = load(folder / MODEL)
    onnx.save(export_model(document.module, document.weights), folder / PLAIN)
    cached = open_language_model(folder)
    onnx.save(export_model(cached.module(), cached.weights), folder / CACHED)


TENSORS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""{name of a layer's weight: name in GGUF}."""


def write_gguf(shape: Shape, folder: Path) -> None:
    """Writes the model in f32 for llama.cpp, which rotates pairs of neighbouring rows."""
    from gguf import GGUFWriter  # An optional package.

    arrays, _ = read_all(folder / WEIGHTS)
    writer = GGUFWriter(folder / GGUF, "llama")
    writer.add_vocab_size(shape.vocabulary)
    writer.add_context_length(2048)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.size)
    writer.add_rope_freq_base(shape.theta)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_tokenizer_model("no_vocab")
    writer.add_tensor("token_embd.weight", arrays[EMBEDDING])
    writer.add_tensor("output_norm.weight", arrays[NORM])
    for at in range(shape.layers):
        for ours, theirs in TENSORS.items():
            array = arrays[f"model.layers.{at}.{ours}.weight"]
            if theirs in ("attn_q", "attn_k"):
                halves = array.reshape(-1, 2, shape.size // 2, shape.width)
                array = halves.swapaxes(1, 2).reshape(array.shape)
            writer.add_tensor(f"blk.{at}.{theirs}.weight", np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
