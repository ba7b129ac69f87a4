"""Small language models of every architecture, in the formats of Hugging Face and of GGUF."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.safetensors import safetensors

WIDTH, HIDDEN, VOCABULARY, SIZE, HEADS, KEPT = 16, 24, 20, 8, 4, 2
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEPT,
    "head_dim": SIZE,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
    "tie_word_embeddings": True,
}
ALTERNATING = {
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 3,
    "query_pre_attn_scalar": 12,
    "num_hidden_layers": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MODELS: Mapping[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": False, "attention_bias": True, "rope_scaling": LLAMA3},
    "mistral": {"sliding_window": 3},
    "qwen2": {},
    "qwen3": {},
    "gemma": {"hidden_activation": "gelu_pytorch_tanh"},
    "gemma2": {**ALTERNATING, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
    "gemma3_text": {
        **ALTERNATING,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_local_base_freq": 50.0,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    },
}
"""The fields of config.json in which each model differs from `COMMON`."""

BIASED = {"llama": "qkvo", "qwen2": "qkv"}
NORMS = {
    "qwen3": ("self_attn.q_norm", "self_attn.k_norm"),
    "gemma2": ("pre_feedforward_layernorm", "post_feedforward_layernorm"),
}
NORMS["gemma3_text"] = NORMS["qwen3"] + NORMS["gemma2"]


def config_of(name: str, **fields: Any) -> dict[str, Any]:
    """The content of config.json."""
    return {"model_type": name, **COMMON, **MODELS[name], **fields}


def weights_of(config: Mapping[str, Any]) -> dict[str, Array]:
    """Random weights, which depend on names only."""
    name = config["model_type"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, WIDTH),
        "model.norm.weight": (WIDTH,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = VOCABULARY, WIDTH
    for at in range(config["num_hidden_layers"]):
        for part, shape in _layer(name).items():
            shapes[f"model.layers.{at}.{part}"] = shape
    return {one: _drawn(one, shape) for one, shape in shapes.items()}


def _layer(name: str) -> dict[str, tuple[int, ...]]:
    wide, narrow = HEADS * SIZE, KEPT * SIZE
    rows = {"q": wide, "k": narrow, "v": narrow, "o": WIDTH}
    found: dict[str, tuple[int, ...]] = {
        f"self_attn.{one}_proj.weight": (rows[one], wide if one == "o" else WIDTH) for one in rows
    }
    for one in BIASED.get(name, ""):
        found[f"self_attn.{one}_proj.bias"] = (rows[one],)
    for one in ("gate", "up"):
        found[f"mlp.{one}_proj.weight"] = HIDDEN, WIDTH
    found["mlp.down_proj.weight"] = WIDTH, HIDDEN
    for one in ("input_layernorm", "post_attention_layernorm", *NORMS.get(name, ())):
        found[f"{one}.weight"] = (SIZE if "self_attn" in one else WIDTH,)
    return found


def _drawn(name: str, shape: tuple[int, ...]) -> Array:
    numbers = np.random.default_rng(crc32(name.encode())).normal(size=shape)
    return (numbers * (0.3 if len(shape) > 1 else 0.5) + ("norm" in name)).astype(np.float32)


def write_folder(folder: Path, name: str, **fields: Any) -> Path:
    """Writes config.json and model.safetensors."""
    folder.mkdir(exist_ok=True)
    config = config_of(name, **fields)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", weights_of(config))
    return folder


def write_safetensors(path: Path, arrays: Mapping[str, Array]) -> None:
    path.write_bytes(b"".join(safetensors(arrays)))


# GGUF

F32, Q8_0, Q4_0, Q4_K, Q6_K = 0, 8, 2, 12, 14
BYTES = {Q8_0: (32, 34), Q4_0: (32, 18), Q4_K: (256, 144), Q6_K: (256, 210)}
"""Elements and bytes of a block."""


def gguf(
    metadata: Mapping[str, object],
    tensors: Mapping[str, tuple[int, tuple[int, ...], bytes]],
    *,
    order: Iterable[str] = (),
) -> bytes:
    """The content of a file; tensors are (format, shape, bytes)."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    header += b"".join(_text(name) + _value(value) for name, value in metadata.items())
    offset, chunks = 0, []
    for name, (kind, shape, data) in tensors.items():
        header += _text(name) + struct.pack("<I", len(shape))
        header += b"".join(struct.pack("<Q", size) for size in reversed(shape))
        header += struct.pack("<IQ", kind, offset)
        chunks.append(_padded(data))
        offset += len(chunks[-1])
    return _padded(header) + b"".join(chunks)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 32)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: object) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
        case list():
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    raise AssertionError(value)


def plain(array: Array) -> tuple[int, tuple[int, ...], bytes]:
    """An f32 tensor of a file."""
    return F32, array.shape, array.astype("<f4").tobytes()


def random_blocks(
    kind: int, shape: tuple[int, int], seed: int
) -> tuple[int, tuple[int, ...], bytes]:
    """A tensor of random blocks with moderate scales."""
    elements, size = BYTES[kind]
    generator = np.random.default_rng(seed)
    count = shape[0] * shape[1] // elements
    data = generator.integers(0, 256, (count, size), dtype=np.uint8)
    for at in {Q4_K: (0, 2), Q6_K: (208,)}.get(kind, (0,)):
        scales = generator.uniform(0.001, 0.01, (count, 1)).astype("<f2")
        data[:, at : at + 2] = scales.view(np.uint8)
    return kind, shape, data.tobytes()


def write_gguf(path: Path, name: str) -> Path:
    """The model of `write_folder` as llama.cpp's converter writes it."""
    config = config_of(name)
    architecture = {"gemma3_text": "gemma3", "mistral": "llama"}.get(name, name)
    fields: dict[str, object] = {
        "block_count": config["num_hidden_layers"],
        "embedding_length": WIDTH,
        "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KEPT,
        "attention.key_length": SIZE,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config["rope_theta"],
    }
    if "sliding_window" in config:
        fields["attention.sliding_window"] = config["sliding_window"]
    metadata = {
        "general.architecture": architecture,
        "tokenizer.ggml.tokens": [f"t{at}" for at in range(VOCABULARY)],
        **{f"{architecture}.{field}": value for field, value in fields.items()},
    }
    tensors = {}
    for one, array in weights_of(config).items():
        tensors[_gguf_name(architecture, one)] = plain(_gguf_value(architecture, one, array))
    path.write_bytes(gguf(metadata, tensors))
    return path


def _gguf_name(architecture: str, name: str) -> str:
    whole = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
    *_, part, kind = name.split(".")
    if not name.startswith("model.layers."):
        return f"{whole[part]}.{kind}"
    parts = {
        **{f"{one}_proj": f"attn_{one}" for one in "qkv"},
        **{f"{one}_proj": f"ffn_{one}" for one in ("gate", "up", "down")},
        **{f"{one}_norm": f"attn_{one}_norm" for one in "qk"},
        "o_proj": "attn_output",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    if architecture in ("gemma2", "gemma3"):
        parts["post_attention_layernorm"] = "post_attention_norm"
        parts["pre_feedforward_layernorm"] = "ffn_norm"
        parts["post_feedforward_layernorm"] = "post_ffw_norm"
    return f"blk.{name.split('.')[2]}.{parts[part]}.{kind}"


def _gguf_value(architecture: str, name: str, array: Array) -> Array:
    """Llama's rows of adjacent pairs, and Gemma's norms."""
    if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
        heads = HEADS if "q_proj" in name else KEPT
        halves = array.reshape(heads, 2, SIZE // 2, *array.shape[1:])
        return halves.swapaxes(1, 2).reshape(array.shape)
    return array + 1 if architecture.startswith("gemma") and "norm" in name else array
