"""Reads the configuration of a language model: Hugging Face's config.json, or GGUF's metadata."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from popgraph.support.errors import ModelError
from popgraph.support.files import CONFIG
from popgraph.support.gguf import GgufFile
from popgraph.support.names import closest
from popgraph.support.reading import Unreadable, read_range, reading, size_of

Value: TypeAlias = int | float | bool | list[float]

_MOST_CONFIG = 10_000_000
_LARGEST = 1 << 62
_SHOWN = 60
"""Characters of a wrong value in a message."""

_MODEL_TYPES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "gemma3": "gemma3",
}
"""Architectures by `model_type`."""

_ACTIVATIONS = {"gemma": ("gelu_pytorch_tanh", "gelu"), "": ("silu", "swish")}
"""Activations by family; Gemma's first checkpoints say "gelu", and mean its tanh form."""

_GEMMA3 = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rope_theta": 1_000_000.0,
}
"""Fields that configurations of Gemma 3 with images omit: the defaults of transformers."""

_GEMMA_WITH_OTHER_SCALE = {"gemma2": 46, "gemma3": 62}
"""
The number of layers of the 27B models, whose scores are scaled by width / heads, not by the size of
a head. GGUF's metadata does not say so.
"""


@dataclass(frozen=True)
class Configuration:
    """The name of an architecture, and the values of the `let`s of its text."""

    architecture: str
    values: Mapping[str, Value]


def read_config(folder: Path, weights: Iterable[str]) -> Configuration:
    """The configuration of a folder, whose checkpoint has weights of these names."""
    path = folder / CONFIG
    try:
        if size_of(path) > _MOST_CONFIG:
            raise Unreadable("it is not a configuration")
        with reading("it is not JSON"):
            found = json.loads(read_range(path, 0, size_of(path)))
    except Unreadable as error:
        raise ModelError(
            f"the configuration cannot be read: {error}",
            str(path),
            "a folder of a language model has a config.json and its weights",
        ) from error
    if not isinstance(found, dict):
        raise ModelError("the configuration is not a JSON object", str(path))
    names = set(weights)
    return _Reader(found, str(path), "lm_head.weight" in names).configuration()


class _Reader:
    """The fields of a config.json."""

    def __init__(self, found: Mapping[str, Any], where: str, has_head: bool) -> None:
        self.kind = str(found.get("model_type", ""))
        inner = found.get("text_config")
        self.fields = found
        if self.kind == "gemma3" and isinstance(inner, dict):
            self.fields = {**_GEMMA3, **inner}
        self.where, self.has_head = where, has_head

    def configuration(self) -> Configuration:
        architecture = _MODEL_TYPES.get(self.kind)
        if architecture is None:
            raise _unknown(self.kind, "model_type", _MODEL_TYPES, self.where)
        heads = self.integer("num_attention_heads")
        width = self.integer("hidden_size")
        size = self.integer("head_dim", width // max(heads, 1))
        theta, factors = self.rope(self._rope("full_attention"), size)
        values: dict[str, Value] = {
            "vocabulary": self.integer("vocab_size"),
            "width": width,
            "hidden": self.integer("intermediate_size"),
            "layers": self.integer("num_hidden_layers"),
            "heads": heads,
            "kv_heads": self.integer("num_key_value_heads", heads),
            "size": size,
            "epsilon": self.number("rms_norm_eps", 1e-6),
            "theta": theta,
            "rope_factors": factors,
        }
        _check_heads(values, self.where)
        gemma = architecture.startswith("gemma")
        self.check_activation("gemma" if gemma else "")
        self.refuse("mlp_bias", "use_bidirectional_attention")
        if not gemma:
            values["tied"] = bool(self.fields.get("tie_word_embeddings")) or not self.has_head
            values["window"] = self.window(self.integer("num_hidden_layers"))
        if architecture == "llama":
            values["biased"] = bool(self.fields.get("attention_bias"))
        elif architecture != "qwen2":
            self.refuse("attention_bias")
        if architecture in _PERIODS:
            values |= self.alternating(architecture, values)
        return Configuration(architecture, values)

    def alternating(self, architecture: str, values: Mapping[str, Value]) -> dict[str, Value]:
        """The values of Gemma 2 and 3, whose layers alternate."""
        scalar = self.number("query_pre_attn_scalar", 256, least=1e-6)
        made: dict[str, Value] = {
            "window": self.integer("sliding_window", 4096),
            "period": self.period(int(values["layers"]), _PERIODS[architecture]),  # type: ignore[arg-type]
            "scale": scalar**-0.5,
        }
        caps = [
            self.number(one, 0) for one in ("attn_logit_softcapping", "final_logit_softcapping")
        ]
        if architecture == "gemma2":
            return made | dict(zip(("score_cap", "logit_cap"), caps, strict=True))
        if any(caps):
            raise self.unfit("capped logits", "only Gemma 2 has them")
        near = self._rope("sliding_attention")
        theta, factors = self.rope(near, int(values["size"]))  # type: ignore[arg-type]
        if factors != 1.0:
            raise self.unfit("scaled rotary embeddings in layers with a window", "use factor 1")
        return made | {"near_theta": theta}

    def period(self, layers: int, usual: int) -> int:
        """The number of layers after which the kinds of layers repeat."""
        kinds = self.kinds(layers)
        if not kinds:
            return max(self.integer("sliding_window_pattern", usual), 1)
        near = [kind == "sliding_attention" for kind in kinds]
        fits = (
            period
            for period in range(1, layers + 2)
            if near == [(at + 1) % period > 0 for at in range(layers)]
        )
        found = next(fits, None)
        if found is None:
            raise self.unfit("layer_types without a period", "the last of each period is full")
        return found

    def kinds(self, layers: int) -> list[str]:
        """The kind of each layer; empty if the configuration does not list them."""
        found = self.fields.get("layer_types") or []
        if not isinstance(found, list) or (found and len(found) != layers):
            raise self.wrong("layer_types", found, f"a list of {layers} kinds")
        return [str(kind) for kind in found]

    def window(self, layers: int) -> int:
        """The window of all layers; 0 is none."""
        kinds = set(self.kinds(layers) or ("sliding_attention",))
        if self.kind.startswith("qwen") and not self.fields.get("use_sliding_window"):
            return 0
        if kinds == {"full_attention"} or self.fields.get("sliding_window") is None:
            return 0
        if kinds != {"sliding_attention"} or self.integer("max_window_layers", 0):
            raise self.unfit("layers with and without a window", "only Gemma's alternate")
        return self.integer("sliding_window")

    def _rope(self, kind: str) -> Mapping[str, Any]:
        """The parameters of rotary embeddings of a kind of layers."""
        found = self.fields.get("rope_parameters")
        if isinstance(found, dict):
            inner = found.get(kind, found)
            return inner if isinstance(inner, dict) else found
        if kind == "sliding_attention":
            return {"rope_theta": self.fields.get("rope_local_base_freq", 10_000.0)}
        scaling = self.fields.get("rope_scaling")
        theta = {"rope_theta": self.fields.get("rope_theta", 10_000.0)}
        return theta | (scaling if isinstance(scaling, dict) else {})

    def rope(self, found: Mapping[str, Any], size: int) -> tuple[float, float | list[float]]:
        """The base of rotary embeddings, and the factors that divide frequencies."""
        kind = found.get("rope_type", found.get("type", "default"))
        reader = _Reader(found, self.where, False)
        theta = reader.number("rope_theta", 10_000.0, least=1e-6)
        if found.get("partial_rotary_factor", self.fields.get("partial_rotary_factor", 1)) != 1:
            raise self.unfit("rotary embeddings of a part of each head", "use all of it")
        if kind == "default":
            return theta, 1.0
        if kind not in ("linear", "llama3"):
            raise self.unfit(
                f"rotary embeddings of type {kind!r}", "the types are default, linear and llama3"
            )
        factor = reader.number("factor", least=1e-6)
        if kind == "linear":
            return theta, factor
        low = reader.number("low_freq_factor")
        high = reader.number("high_freq_factor", least=low + 1e-6)
        length = reader.number("original_max_position_embeddings")
        return theta, _llama3_factors(size, theta, factor, low, high, length)

    def check_activation(self, family: str) -> None:
        known = _ACTIVATIONS[family]
        said = self.fields.get("hidden_activation") or self.fields.get("hidden_act", known[0])
        if said not in known:
            raise self.unfit(f"the activation {said!r}", f"this architecture has {known[0]}")

    def refuse(self, *fields: str) -> None:
        for field in fields:
            if self.fields.get(field):
                raise self.unfit(field, f"set {field} to false if the weights have none")

    def integer(self, field: str, default: int | None = None) -> int:
        found = self.fields.get(field)
        found = default if found is None else found
        if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < _LARGEST:
            raise self.wrong(field, found, "an integer")
        return found

    def number(self, field: str, default: float | None = None, least: float = 0) -> float:
        found = self.fields.get(field)
        found = default if found is None else found
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        if found is None or not is_number or not least <= found < _LARGEST:
            raise self.wrong(field, found, f"a number from {least:g} on")
        return float(found)

    def wrong(self, field: str, found: object, kind: str) -> ModelError:
        said = "is missing" if found is None else f"is {repr(found)[:_SHOWN]}"
        return ModelError(f"{field} {said}, not {kind}", self.where)

    def unfit(self, what: str, hint: str) -> ModelError:
        return ModelError(
            f"the model has {what}, which its text does not express", self.where, hint
        )


_PERIODS = {"gemma2": 2, "gemma3": 6}
"""The usual period of layers: the last one sees all tokens, the others a window."""


def _check_heads(values: Mapping[str, Value], where: str) -> None:
    heads, kept, size = (int(values[one]) for one in ("heads", "kv_heads", "size"))  # type: ignore[arg-type]
    if min(heads, kept, size) < 1 or heads % kept or size % 2:
        raise ModelError(
            f"{heads} heads of size {size} cannot share {kept} heads of keys",
            where,
            "the number of heads is a multiple of that of keys, and their size is even",
        )


def _unknown(kind: str, field: str, known: Iterable[str], where: str) -> ModelError:
    close = closest(kind, known)
    listed = ", ".join(dict.fromkeys(known))
    return ModelError(
        f"there is no text for the architecture {kind!r} ({field})",
        where,
        (f"did you mean {close!r}? " if close else "") + f"there are texts for {listed}; other "
        "models run from ONNX files, which optimum and torch.onnx export",
    )


def _llama3_factors(
    size: int, theta: float, factor: float, low: float, high: float, length: float
) -> list[float]:
    """
    Llama 3's factors: 1 for short waves, `factor` for long ones, and smooth in between.

    Waves are short below length / high and long above length / low.
    """
    frequencies = 1 / theta ** (np.arange(0, size, 2) / size)
    turns = length * frequencies / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return [float(one) for one in 1 / ((1 - share) / factor + share)]


def read_metadata(file: GgufFile) -> Configuration:
    """The configuration in the metadata of a GGUF file."""
    where = str(file.path)
    architecture = str(file.metadata.get("general.architecture", ""))
    if architecture not in _MODEL_TYPES.values():
        raise _unknown(architecture, "general.architecture", _MODEL_TYPES.values(), where)
    prefix = f"{architecture}."
    fields = {name.removeprefix(prefix): value for name, value in file.metadata.items()}
    reader = _Reader(fields, where, False)
    integer, number = reader.integer, reader.number
    heads, width = integer("attention.head_count"), integer("embedding_length")
    size = integer("attention.key_length", width // max(heads, 1))
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError("the file has no matrix token_embd.weight", where)
    values: dict[str, Value] = {
        "vocabulary": embedding.shape[0],
        "width": width,
        "hidden": integer("feed_forward_length"),
        "layers": integer("block_count"),
        "heads": heads,
        "kv_heads": integer("attention.head_count_kv", heads),
        "size": size,
        "epsilon": number("attention.layer_norm_rms_epsilon"),
        "theta": number("rope.freq_base", 10_000.0, least=1e-6),
        "rope_factors": _gguf_factors(file, reader, size),
    }
    _check_heads(values, where)
    if integer("rope.dimension_count", size) != size:
        raise reader.unfit("rotary embeddings of a part of each head", "use all of it")
    if integer("expert_count", 0):
        raise reader.unfit("several experts", "use a dense model")
    if not architecture.startswith("gemma"):
        values["tied"] = "output.weight" not in file.tensors
        values["window"] = integer("attention.sliding_window", 0)
    if architecture == "llama":
        values["biased"] = "blk.0.attn_q.bias" in file.tensors
    if architecture in _PERIODS:
        is_largest = values["layers"] == _GEMMA_WITH_OTHER_SCALE[architecture]
        values |= {
            "window": integer("attention.sliding_window", 4096),
            "period": _PERIODS[architecture],
            "scale": (width / heads if is_largest else size) ** -0.5,
        }
    if architecture == "gemma2":
        values["score_cap"] = number("attn_logit_softcapping", 50.0)
        values["logit_cap"] = number("final_logit_softcapping", 30.0)
    if architecture == "gemma3":
        values["near_theta"] = number("rope.freq_base_swa", 10_000.0, least=1e-6)
    return Configuration(architecture, values)


def _gguf_factors(file: GgufFile, reader: _Reader, size: int) -> float | list[float]:
    """The factors that divide the frequencies of rotary embeddings."""
    stored = file.tensors.get("rope_freqs.weight")
    if stored is not None:
        factors = file.read("rope_freqs.weight") if stored.shape == (size // 2,) else None
        if not isinstance(factors, np.ndarray):
            raise ModelError(
                f"rope_freqs.weight is not {size // 2} floats, one for each frequency", reader.where
            )
        return [float(one) for one in factors]
    kind = str(reader.fields.get("rope.scaling.type", "none"))
    if kind == "none":
        return 1.0
    if kind != "linear":
        raise reader.unfit(
            f"rotary embeddings of type {kind!r}", "the types are none and linear, or rope_freqs"
        )
    return reader.number("rope.scaling.factor", least=1e-6)
