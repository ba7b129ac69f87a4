"""Translates the tensors of GGUF files to the names and layouts of Hugging Face's checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.ggml_blocks import Blocks
from popgraph.support.reading import Unreadable

_LAYER = re.compile(r"blk\.(\d+)\.(.+)\.(weight|bias)")

_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}

NOT_WEIGHTS = ("rope_freqs.weight",)
"""Tensors of the configuration: Hugging Face's config.json has their parameters."""

_PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}

_GEMMA = _PARTS | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
"""Gemma 2 and 3 normalize before and after both halves of a layer."""

_ARCHITECTURES = {
    "llama": _PARTS,
    "qwen2": _PARTS,
    "qwen3": _PARTS,
    "gemma": _PARTS,
    "gemma2": _GEMMA,
    "gemma3": _GEMMA,
}


@dataclass(frozen=True)
class Translation:
    """
    The names and values of an architecture's tensors.

    Rotary embeddings rotate adjacent pairs of rows in GGUF's Llama, and the halves of a head in
    Hugging Face's, so the rows of queries and keys have another order. Gemma's norms have 1 added.
    """

    architecture: str
    heads: int
    kv_heads: int

    def name(self, name: str) -> str:
        """`blk.0.attn_q.weight`  ->  `model.layers.0.self_attn.q_proj.weight`."""
        if name in _WHOLE:
            return _WHOLE[name]
        found = _LAYER.fullmatch(name)
        part = _ARCHITECTURES[self.architecture].get(found[2]) if found else None
        return f"model.layers.{found[1]}.{part}.{found[3]}" if found and part else name

    def value(self, name: str, stored: Array | Blocks) -> Array | Blocks:
        """The value of a tensor in Hugging Face's layout."""
        found = _LAYER.fullmatch(name)
        if self.architecture == "llama" and found and found[2] in ("attn_q", "attn_k"):
            heads = self.heads if found[2] == "attn_q" else self.kv_heads
            order = _halves(name, stored.shape[0] if stored.shape else 0, heads)
            return stored.rows(order) if isinstance(stored, Blocks) else stored[order]
        is_norm = name.endswith("norm.weight")
        if self.architecture.startswith("gemma") and is_norm and not isinstance(stored, Blocks):
            less: Array = stored - stored.dtype.type(1)
            return less
        return stored


def _halves(name: str, rows: int, heads: int) -> Array:
    """The order of rows that makes halves of each head out of adjacent pairs."""
    if rows % (2 * heads):
        raise Unreadable(f"{name!r} has {rows} rows, not two for each of {heads} heads")
    found: Array = np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
    return found


def translation_of(metadata: Mapping[str, Any]) -> Translation | None:
    """The translation of a file; None if its architecture has none."""
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in _ARCHITECTURES:
        return None
    heads = metadata.get(f"{architecture}.attention.head_count")
    kv_heads = metadata.get(f"{architecture}.attention.head_count_kv", heads)
    if not isinstance(heads, int) or not isinstance(kv_heads, int) or min(heads, kv_heads) < 1:
        raise Unreadable(f"its number of heads is {heads!r}, and of key heads {kv_heads!r}")
    return Translation(architecture, heads, kv_heads)
