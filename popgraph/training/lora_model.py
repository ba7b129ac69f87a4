"""A model with LoRA adapters, before it is trained: the choice of weights, and first values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from zlib import crc32

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.pgraph import Document
from popgraph.compiler import Model, load
from popgraph.compiler.saving import save_model
from popgraph.dialects.levels import ONNX, level_of
from popgraph.dialects.onnx import model_of
from popgraph.dialects.program import WeightStore
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.support.errors import ModelError
from popgraph.support.names import closest
from popgraph.support.shapes import prod
from popgraph.support.tables import table
from popgraph.training.adapters import (
    ADAPTED,
    Adapter,
    Candidate,
    Factors,
    add_adapters,
    candidates,
    find_adapters,
)
from popgraph.training.merged_weights import separate_weights
from popgraph.training.task import TextSource, document_of

WHERE = "popgraph.lora"


@dataclass(frozen=True)
class LoraModel(TextSource):
    """A model with LoRA adapters: everything that takes a model takes it."""

    read: ModuleOp = field(repr=False)
    weights: WeightStore = field(repr=False)
    document: Document | None = field(default=None, repr=False)
    """The text of the model with adapters in its graphs, if it is a text."""

    def module(self) -> ModuleOp:
        """The model with its adapters."""
        return self.read.clone()

    def text(self) -> Document | None:
        """A copy of the text, with the adapters in its graphs."""
        return self.changed(lambda _: None).document

    def save(self, path: str | Path) -> None:
        """Writes the model as .onnx, or as .pgraph without a training section."""
        save_model(Path(path), self.read, Compilation(self.weights))

    def changed(self, change: Callable[[ModuleOp], object]) -> LoraModel:
        """A copy whose module, and that of its training section, are changed."""
        held = [self.read] if self.document is None else modules_of(self.document)
        copies = [one.clone() for one in held]
        for one in copies:
            change(one)
        document = self.document and with_modules(self.document, copies)
        return replace(self, read=copies[0], document=document)

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        """The adapters, in the order of their weights."""
        return tuple(find_adapters(self.read, self.weights))

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("weight", "inputs", "outputs", "rank", "scale", "values")]
        total = 0
        for one in self.adapters:
            form, count = one.form, one.form.values(one.rank)
            total += count
            sizes = (form.inputs, form.outputs, one.rank)
            rows.append((one.name, *map(str, sizes), f"{one.scale:g}", f"{count:,}"))
        return f"{table(rows)}\n{total:,} values of adapters"


def opened(model: Model) -> LoraModel:
    """The model as it is, with the training section of a text; ModelError below the onnx level."""
    document = document_of(model)
    if document is not None:
        return LoraModel(document.module, document.weights, document)
    module, compilation = load(model)
    if level_of(module) != ONNX:
        raise ModelError(
            f"a module of the {level_of(module)} level has no weights to adapt",
            hint="adapt the model as it was written",
        )
    separate_weights(module, compilation.weights)
    return LoraModel(module, compilation.weights)


def adapted(model: LoraModel, chosen: Mapping[str, Factors], dropout: float = 0.0) -> LoraModel:
    """The model with adapters of these weights, in its training section, too."""
    return model.changed(lambda module: add_adapters(module, model.weights, chosen, dropout))


def modules_of(document: Document) -> list[ModuleOp]:
    """The module of the first graph of a text, and that of its training section, if any."""
    section = document.training
    return [document.module] if section is None else [document.module, section.module]


def with_modules(document: Document, modules: list[ModuleOp]) -> Document:
    """The document with other modules in the places of `modules_of`."""
    name = next(iter(document.graphs))
    trainings = dict(document.trainings)
    if document.training is not None:
        trainings[name] = replace(document.training, module=modules[1])
    return replace(document, graphs={**document.graphs, name: modules[0]}, trainings=trainings)


@dataclass(frozen=True)
class LoraSettings:
    """The arguments of `popgraph.lora`."""

    rank: int
    layers: tuple[str, ...] | None
    """Patterns (`fnmatch`) of weights, or of nodes that read them; None: matrices."""
    alpha: float
    dropout: float
    seed: int

    def apply(self, model: LoraModel) -> LoraModel:
        """The model with adapters of the selected weights; their B is zero."""
        infer_shapes(model.read, model.weights)
        held, refused = candidates(model_of(model.read).graph)
        chosen = (
            self._default(held, refused) if self.layers is None else self._matched(held, refused)
        )
        return adapted(model, {one.name: self._factors(one) for one in chosen}, self.dropout)

    def _factors(self, one: Candidate) -> Factors:
        """
        A is uniform up to 1 / sqrt(inputs), as PyTorch draws the weights of linear layers.

        It depends on the seed and on the name of the weight, not on the other weights.
        """
        first, second = one.form.shapes(self.rank)
        bound = 1 / np.sqrt(max(1, prod(first[1:])))
        generator = np.random.default_rng([self.seed, crc32(one.name.encode())])
        scale = self.alpha / self.rank
        return Factors(generator.uniform(-bound, bound, first), np.zeros(second), scale)

    def _default(
        self, held: Mapping[str, Candidate], refused: Mapping[str, str]
    ) -> list[Candidate]:
        """The matrices with more values than their adapters have."""
        chosen = [
            one
            for one in held.values()
            if not one.form.kernel
            and one.form.inputs * one.form.outputs > one.form.values(self.rank)
        ]
        if not chosen and ADAPTED in refused.values():
            raise ModelError(
                "the matrices of the model have adapters already",
                WHERE,
                "merge_lora(model) merges these into the weights",
            )
        if not chosen:
            raise ModelError(
                f"no matrix of the model has more values than an adapter of rank {self.rank}",
                WHERE,
                f"name the layers; {_listed(held)}",
            )
        return chosen

    def _matched(
        self, held: Mapping[str, Candidate], refused: Mapping[str, str]
    ) -> list[Candidate]:
        """The weights that the patterns match; ModelError if a pattern matches none."""
        chosen: dict[str, Candidate] = {}
        for pattern in self.layers or ():
            found = {
                name: one
                for name, one in held.items()
                if any(fnmatchcase(label, pattern) for label in one.labels)
            }
            if not found:
                raise self._unmatched(pattern, held, refused)
            chosen |= found
        return [*chosen.values()]

    def _unmatched(
        self, pattern: str, held: Mapping[str, Candidate], refused: Mapping[str, str]
    ) -> ModelError:
        known = next((name for name in refused if fnmatchcase(name, pattern)), None)
        if known is not None:
            what = f"weight {known!r} cannot have an adapter: {refused[known]}"
            return ModelError(what, WHERE, _listed(held))
        close = closest(pattern, [label for one in held.values() for label in one.labels], 0.5)
        meant = f"did you mean {close!r}? " if close else ""
        what = f"no weight of a product matches the pattern {pattern!r}"
        return ModelError(what, WHERE, meant + _listed(held))


def _listed(held: Mapping[str, Candidate]) -> str:
    names = ", ".join([*held][:8]) + ", ..." * (len(held) > 8)
    return f"weights that can have adapters are {names or 'none'}"
