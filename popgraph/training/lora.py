"""`popgraph.lora`: low-rank adapters of a model, their files, and their merged form."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from popgraph.compiler import Model
from popgraph.dialects.onnx import model_of
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.support.argument_types import check_types
from popgraph.support.arrays import Array
from popgraph.support.checkpoints import open_checkpoint
from popgraph.support.errors import ArgumentError, ModelError, TypeMismatchError
from popgraph.support.names import closest
from popgraph.support.ranks.world import world
from popgraph.support.reading import Unreadable, read_range, reading, size_of
from popgraph.support.safetensors import entries, safetensors
from popgraph.support.shapes import text
from popgraph.support.writing import Chunks, write_files
from popgraph.training.adapters import (
    Adapter,
    Candidate,
    Factors,
    candidates,
    merge_adapters,
)
from popgraph.training.lora_model import LoraModel, LoraSettings, adapted, opened
from popgraph.training.roles import name_of_a, name_of_b
from popgraph.training.trainer import Trainer

PREFIX = "base_model.model."
"""The prefix of names in PEFT's files."""
FILE, CONFIG = "adapter_model.safetensors", "adapter_config.json"
"""The files of a folder of PEFT."""
METADATA = "adapter_config"
"""The key under which a single file holds what a folder has in its `adapter_config.json`."""
_MOST_CONFIG = 10_000_000
_OTHER_SUMS = ("use_dora", "use_qalora", "alora_invocation_tokens", "layer_replication")
"""Options of PEFT with which a product is not that of W + alpha / rank * B A."""
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq")
"""First values in PEFT that are subtracted from the weights of the base."""
_PLAIN = re.compile(r"[\w.:]+")
"""The name of a module; PEFT also takes regular expressions."""


@check_types()
def lora(
    model: Model,
    rank: int = 4,
    layers: Iterable[str] | str | None = None,
    *,
    alpha: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> LoraModel:
    """
    The model with low-rank adapters: y = x W becomes y = x W + alpha / rank * x A^T B^T.

    `layers` are patterns of the names of weights, such as `"*.q_proj.weight"`, or of the nodes
    that read them: MatMul, Gemm, MatMulNBits, and Conv without groups. By default, each matrix gets
    an adapter that is smaller than itself. `alpha` is the rank by default. `dropout` drops elements
    of the x of an adapter in training.

    B is zero at first, so the outputs do not change; `seed` draws A. Training changes the
    adapters only, unless `train_only` names other weights: all others are constants.
    """
    return lora_settings(rank, layers, alpha=alpha, dropout=dropout, seed=seed).apply(opened(model))


def lora_settings(
    rank: int,
    layers: Iterable[str] | str | None = None,
    *,
    alpha: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> LoraSettings:
    """Checks the arguments of `lora`."""
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise ArgumentError(f"the rank must be a positive integer, not {rank!r}", "rank", "rank=4")
    if layers is not None:
        layers = (layers,) if isinstance(layers, str) else tuple(layers)
        for one in layers:
            if not isinstance(one, str):
                raise ArgumentError(
                    f"{one!r} is not a name pattern", "layers", 'layers="*.q_proj*"'
                )
        if not layers:
            raise ArgumentError("no layers are given", "layers", "leave it out to adapt matrices")
    if not isinstance(seed, int) or seed < 0:
        raise ArgumentError(f"the seed must be an integer of at least 0, not {seed!r}", "seed")
    number = _number("alpha", float(rank) if alpha is None else alpha)
    return LoraSettings(rank, layers, number, _ratio(dropout), seed)


def _ratio(dropout: object) -> float:
    if not 0 <= (found := _number("dropout", dropout)) < 1:
        raise ArgumentError(f"the dropout must be from 0 to 1, not {dropout!r}", "dropout", "0.1")
    return found


def _number(name: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given):
        raise ArgumentError(f"{name} must be a number, not {given!r}", name)
    return float(given)


@check_types()
def merge_lora(model: Model | Trainer) -> LoraModel:
    """
    The model without adapters: W + alpha / rank * B A replaces each adapted weight.

    `model` has adapters, or is a `Trainer` of such a model. A weight that is stored as f16 is
    rounded again; one that is stored in blocks of integers becomes floats.
    """
    found = _with_adapters(model)
    return found.changed(lambda module: merge_adapters(module, found.weights))


@check_types()
def save_lora(model: Model | Trainer, path: str | Path) -> None:
    """
    Writes the adapters alone, as one `.safetensors` file or as a folder with PEFT's two files.

    `model` has adapters, or is a `Trainer` of such a model.
    """
    found, path = _with_adapters(model), Path(path)
    adapters = found.adapters
    arrays: dict[str, Array] = {}
    for one in adapters:
        first = name_of_a(one.name)
        factors = one.factors(found.weights)
        for name, array in ((first, factors.a), (name_of_b(first), factors.b)):
            arrays[_key(name)] = np.ascontiguousarray(array)
    config = json.dumps(_configuration(adapters), indent=2)
    files: list[tuple[Path, Chunks]] = [(path, safetensors(arrays, {METADATA: config}))]
    if path.suffix != ".safetensors":
        if path.suffix:
            raise ArgumentError(
                f"adapters are saved as a .safetensors file or a folder, not {path.suffix}",
                str(path),
                "adapters.safetensors",
            )
        path.mkdir(parents=True, exist_ok=True)
        files = [
            (path / FILE, safetensors(arrays, {"format": "pt"})),
            (path / CONFIG, [f"{config}\n".encode()]),
        ]
    if world().is_first:
        write_files(files)


@check_types()
def load_lora(
    model: Model,
    adapters: Any,
    *,
    alpha: float | None = None,
    dropout: float = 0.0,
) -> LoraModel:
    """
    The model with saved adapters, to run, to train further or to merge.

    `adapters` is a file of `save_lora`, a folder of PEFT (`adapter_model.safetensors` and
    `adapter_config.json`), a `.npz` file, or a mapping of names to arrays. The last two do not know
    `alpha`, and need it.
    """
    base, saved = opened(model), _Saved.of(adapters, alpha)
    infer_shapes(base.read, base.weights)
    held, refused = candidates(model_of(base.read).graph)
    names = {_key(name_of_a(name)): name for name in (*held, *refused)}
    chosen: dict[str, Factors] = {}
    for key in saved.arrays:
        label = key if key.startswith(PREFIX) else PREFIX + key
        other = _key(name_of_b(label.removeprefix(PREFIX)))
        if not name_of_b(label):
            continue
        if label not in names:
            raise saved.unknown(key, names)
        name = names[label]
        if name in refused:
            raise ModelError(
                f"weight {name!r} cannot have an adapter: {refused[name]}", saved.where
            )
        chosen[name] = saved.factors(held[name], key, other)
    saved.check_rest()
    if not chosen:
        raise ModelError(
            "there are no adapters", saved.where, "save_lora(trainer, path) writes some"
        )
    return adapted(base, chosen, _ratio(dropout))


def _with_adapters(model: Model | Trainer) -> LoraModel:
    """The model, or that of the trainer; ModelError if it has no adapters."""
    if isinstance(model, Trainer):
        found = LoraModel(model.inference_module(), model.task.weights)
    else:
        found = opened(model)
    if not found.adapters:
        raise ModelError(
            "the model has no LoRA adapters", hint="popgraph.lora(model, rank=4) adds some"
        )
    return found


def _key(name: str) -> str:
    """The name in PEFT's files: `a/b/lora_A/weight` is `base_model.model.a.b.lora_A.weight`."""
    return PREFIX + name.replace("/", ".")


def _module(name: str) -> str:
    """The module of a weight in PEFT's words: `fc1` of `fc1.weight`."""
    return name_of_a(name).replace("/", ".").removesuffix(".lora_A.weight")


def _configuration(adapters: Sequence[Adapter]) -> dict[str, object]:
    """The content of `adapter_config.json`."""
    kinds = Counter((one.rank, one.scale * one.rank) for one in adapters)
    ((rank, alpha), _), *_ = kinds.most_common(1)
    ranks = {_module(one.name): one.rank for one in adapters if one.rank != rank}
    alphas = {
        _module(one.name): one.scale * one.rank for one in adapters if one.scale * one.rank != alpha
    }
    return {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": [_module(one.name) for one in adapters],
        "rank_pattern": ranks,
        "alpha_pattern": alphas,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


@dataclass
class _Saved:
    """Adapters of a file."""

    arrays: dict[str, Array]
    where: str
    config: Mapping[str, Any]

    @staticmethod
    def of(source: Any, alpha: float | None) -> _Saved:
        """Reads adapters; ModelError if that fails or if their alpha is unknown."""
        config: Mapping[str, Any] | None = None
        if isinstance(source, Mapping):
            where = "the mapping of adapters"
            arrays = {str(name): np.asarray(one) for name, one in source.items()}
        else:
            where = str(source)
            try:
                file = Path(source) / FILE if Path(source).is_dir() else Path(source)
                where = str(file)
                arrays, config = _read(file)
            except TypeError as error:
                raise ArgumentError(
                    "adapters are a file, a folder or a mapping of arrays, "
                    f"not {type(source).__name__}",
                    "load_lora",
                ) from error
            except Unreadable as error:
                raise ModelError(f"the adapters cannot be read: {error}", where) from error
        if alpha is not None:
            config = {"lora_alpha": _number("alpha", alpha)}
        if config is None:
            raise ModelError(
                "the alpha of the adapters is unknown", where, "alpha=8, the factor of training"
            )
        made = _Saved(arrays, where, config)
        made._check_kind()
        return made

    def _check_kind(self) -> None:
        """ModelError for kinds of adapters that are not sums of x W and a low-rank product."""
        kind = self.config.get("peft_type", "LORA")
        if kind != "LORA":
            raise ModelError(
                f"adapters of the kind {kind} are unknown", self.where, "LORA is known"
            )
        for option in _OTHER_SUMS:
            if self.config.get(option):
                raise ModelError(f"adapters with {option} compute another sum", self.where)
        first = str(self.config.get("init_lora_weights")).lower()
        if first.startswith(_CHANGES_BASE):
            raise ModelError(
                f"adapters whose init_lora_weights is {first!r} belong to a changed base",
                self.where,
                "PEFT converts them: save_pretrained has path_initial_model_for_weight_conversion",
            )

    def scale(self, module: str, rank: int) -> float:
        """The factor of B A for a module."""
        alpha, patterns = self.config.get("lora_alpha"), self.config.get("alpha_pattern") or {}
        for name, own in patterns.items() if isinstance(patterns, dict) else ():
            if not _PLAIN.fullmatch(name):
                raise ModelError(
                    f"the alpha_pattern {name!r} is not the name of a module", self.where
                )
            if f".{module}".endswith(f".{name}"):
                alpha = own
        return _number("lora_alpha", alpha) / (rank**0.5 if self.config.get("use_rslora") else rank)

    def factors(self, one: Candidate, key: str, other: str) -> Factors:
        """The adapter of a weight; `key` is the entry of A, and `other` that of B."""
        second = other if other in self.arrays else other.removeprefix(PREFIX)
        if second not in self.arrays:
            raise ModelError(f"{key!r} has no partner {second!r}", self.where)
        a, b = self.arrays[key], self.arrays[second]
        rank = len(a) if a.ndim else 0
        wanted = one.form.shapes(max(rank, 1))
        for name, array, shape in ((key, a, wanted[0]), (second, b, wanted[1])):
            if array.shape != shape or array.dtype.kind not in "fV":
                raise TypeMismatchError(
                    f"{name!r} is {array.dtype} of shape {text(array.shape)}, but weight "
                    f"{one.name!r} takes floats of shape {text(shape)}",
                    self.where,
                )
        return Factors(a, b, self.scale(_module(one.name), rank))

    def check_rest(self) -> None:
        """ModelError for entries that are not matrices of adapters."""
        firsts = {key for key in self.arrays if name_of_b(key)}
        known = firsts | {name_of_b(key) for key in firsts}
        for key in self.arrays:
            if key not in known:
                raise ModelError(
                    f"{key!r} is not a matrix of an adapter",
                    self.where,
                    "load_weights(model, file, strict=False) loads other weights",
                )

    def unknown(self, key: str, names: Mapping[str, str]) -> ModelError:
        """The error for an adapter of a weight that the model does not have."""
        label = key if key.startswith(PREFIX) else PREFIX + key
        close = closest(label, names)
        return ModelError(
            f"the model has no weight for {key!r}",
            self.where,
            f"did you mean the adapter of {names[close]!r}?" if close else "",
        )


def _read(file: Path) -> tuple[dict[str, Array], Mapping[str, Any] | None]:
    """The arrays of a file, and its configuration, if it has one."""
    checkpoint = open_checkpoint(file)
    arrays = {}
    for name in checkpoint:
        held = checkpoint.read(name)
        assert isinstance(held, np.ndarray), "only .gguf files have blocks"
        arrays[name] = np.array(held)
    if file.suffix == ".safetensors" and METADATA in (metadata := entries(file)[1]):
        return arrays, _json(str(metadata[METADATA]).encode())
    config = file.parent / CONFIG
    if file.name == FILE and config.is_file():
        if size_of(config) > _MOST_CONFIG:
            raise Unreadable(f"{CONFIG} is not a configuration")
        return arrays, _json(read_range(config, 0, size_of(config)))
    return arrays, None


def _json(content: bytes) -> Mapping[str, Any]:
    with reading(f"{CONFIG} is not a configuration"):
        found = json.loads(content)
    if not isinstance(found, dict):
        raise Unreadable(f"{CONFIG} is not a configuration")
    return found
