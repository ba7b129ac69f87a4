"""Opens a language model: a folder with a config.json and weights, or a GGUF file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.architectures.configurations import (
    Configuration,
    read_config,
    read_metadata,
)
from popgraph.builder.architectures.texts import model_text
from popgraph.builder.pgraph import parse
from popgraph.builder.source import ModelSource
from popgraph.dialects.program import WeightStore
from popgraph.support.checkpoints import Checkpoint, open_checkpoint
from popgraph.support.errors import ModelError
from popgraph.support.files import CONFIG, State, state_of
from popgraph.support.reading import Unreadable

_PREFIXES = ("language_model.model.", "model.language_model.")
"""Prefixes of the decoder's weights in models that also see images."""


@dataclass(frozen=True)
class LanguageModel(ModelSource):
    """A language model: its `.pgraph` text, and its weights as their files store them."""

    path: Path
    configuration: Configuration
    checkpoint: Checkpoint
    text: str
    """The text, which loads weights by the names of the checkpoint."""
    read: ModuleOp
    weights: WeightStore

    def module(self) -> ModuleOp:
        """The model."""
        return self.read.clone()


def open_language_model(path: str | Path) -> LanguageModel:
    """Opens a model; ModelError if its architecture is unknown or its weights do not fit."""
    path = Path(path)
    states: dict[Path, State] = {}
    try:
        for one in (path, path / CONFIG):
            if one.exists():
                states[one.resolve()] = state_of(one)
        checkpoint = _without_prefix(open_checkpoint(path))
    except Unreadable as error:
        raise ModelError(
            f"the weights cannot be read: {error}",
            str(path),
            "a language model is a .gguf file, or a folder with config.json and .safetensors",
        ) from error
    except OSError as error:
        raise ModelError(f"the file cannot be read: {error.strerror}", str(path)) from error
    if checkpoint.gguf is not None:
        configuration = read_metadata(checkpoint.gguf)
    else:
        configuration = read_config(path if path.is_dir() else path.parent, checkpoint)
    text = model_text(configuration)
    document = parse(text, f"{path}:{configuration.architecture}.pgraph", weights=checkpoint)
    document.weights.files.update(states)
    return LanguageModel(path, configuration, checkpoint, text, document.module, document.weights)


def _without_prefix(checkpoint: Checkpoint) -> Checkpoint:
    """The decoder of a model that also sees images."""
    for prefix in _PREFIXES:
        if f"{prefix}embed_tokens.weight" in checkpoint:
            named = {
                f"model.{name.removeprefix(prefix)}" if name.startswith(prefix) else name: read
                for name, read in checkpoint.readers.items()
            }
            head = named.pop("language_model.lm_head.weight", None)
            if head is not None:
                named["lm_head.weight"] = head
            return replace(checkpoint, readers=named, is_renamed=True)
    return checkpoint
