"""SmolLM2-135M: its numbers, and the files of a folder with its weights."""

from __future__ import annotations

from dataclasses import dataclass

WEIGHTS, MODEL, PLAIN, CACHED, GGUF = (
    *("model.safetensors", "smollm2.pgraph"),
    *("plain.onnx", "cached.onnx", "smollm2.gguf"),
)
"""Files of a folder: weights, text; ONNX without and with a cache; llama.cpp's format."""
EMBEDDING, NORM = "model.embed_tokens.weight", "model.norm.weight"


@dataclass(frozen=True)
class Shape:
    """The numbers of a Llama-like model, as `arena.pgraph` names them."""

    length: int = 128
    vocabulary: int = 49152
    width: int = 576
    hidden: int = 1536
    layers: int = 30
    heads: int = 9
    kv_heads: int = 3
    size: int = 64
    epsilon: float = 1e-5
    theta: float = 100000.0

    @property
    def config(self) -> dict[str, object]:
        """The model's config.json."""
        return {
            "model_type": "llama",
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "intermediate_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.size,
            "rms_norm_eps": self.epsilon,
            "rope_theta": self.theta,
            "tie_word_embeddings": True,
        }

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """{name of a weight: its shape}."""
        wide, narrow = self.heads * self.size, self.kv_heads * self.size
        layer = {
            "input_layernorm": (self.width,),
            "self_attn.q_proj": (wide, self.width),
            "self_attn.k_proj": (narrow, self.width),
            "self_attn.v_proj": (narrow, self.width),
            "self_attn.o_proj": (self.width, wide),
            "post_attention_layernorm": (self.width,),
            "mlp.gate_proj": (self.hidden, self.width),
            "mlp.up_proj": (self.hidden, self.width),
            "mlp.down_proj": (self.width, self.hidden),
        }
        layers = {
            f"model.layers.{at}.{name}.weight": shape
            for at in range(self.layers)
            for name, shape in layer.items()
        }
        return {EMBEDDING: (self.vocabulary, self.width), **layers, NORM: (self.width,)}
