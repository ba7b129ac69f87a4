"""Known networks as `.pgraph` texts: `popgraph.zoo.resnet18(classes=10)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from popgraph.builder.pgraph import Listing
from popgraph.builder.pgraph.tools.parameters import Value, parameters_of, with_parameters
from popgraph.support.errors import ArgumentError, ModelError
from popgraph.support.names import Names
from popgraph.support.texts import read_text

FOLDER = Path(__file__).parent
"""The folder of the texts."""


@dataclass(frozen=True)
class Entry:
    """A network of the zoo: `entry(classes=10)` is its text."""

    name: str
    about: str
    file: str
    """The text in this folder."""
    values: Mapping[str, Value] = field(default_factory=dict)
    """Values of parameters that make this network of the text."""

    @property
    def path(self) -> Path:
        """The file with the text, for networks of other sizes, too."""
        return FOLDER / self.file

    @property
    def parameters(self) -> dict[str, Value]:
        """The parameters and their defaults."""
        known = parameters_of(read_text(self.path), self.file)
        return {name: one.value for name, one in known.items()} | dict(self.values)

    def __call__(self, *unnamed: object, **parameters: object) -> Listing:
        """The `.pgraph` text with these parameters, which every function for models takes."""
        if unnamed:
            raise ArgumentError(
                f"{self.name} takes parameters by name",
                hint=f"it has {', '.join(self.parameters)}",
            )
        return Listing(
            with_parameters(read_text(self.path), {**self.values, **parameters}, self.name)
        )


_SMALL: Value = [2, 2, 2, 2]
_LARGE: Value = [3, 4, 6, 3]
_ENTRIES = (
    Entry("lenet", "digits, 28 x 28", "lenet.pgraph"),
    Entry("resnet18", "images", "resnet.pgraph", {"blocks": _SMALL, "bottleneck": False}),
    Entry("resnet34", "images", "resnet.pgraph", {"blocks": _LARGE, "bottleneck": False}),
    Entry("resnet50", "images", "resnet.pgraph"),
    Entry("mobilenet_v2", "images, on small devices", "mobilenet_v2.pgraph"),
    Entry("vit_tiny", "images, by attention", "vit.pgraph"),
    Entry("unet", "the class of every pixel", "unet.pgraph"),
    Entry("bert_tiny", "texts", "bert.pgraph"),
    Entry("lstm_tagger", "the tag of every word", "lstm_tagger.pgraph"),
    Entry("gpt", "the next token", "gpt.pgraph"),
    Entry("resnet8", "images, on microcontrollers", "resnet8.pgraph"),
    Entry("ds_cnn", "spoken key words, on microcontrollers", "ds_cnn.pgraph"),
    Entry("mobilenet_v1", "persons in images, on microcontrollers", "mobilenet_v1.pgraph"),
    Entry("autoencoder", "unusual sounds, on microcontrollers", "autoencoder.pgraph"),
)
ENTRIES = {entry.name: entry for entry in _ENTRIES}
"""The networks by name."""
_NAMES = Names("network", dict.fromkeys(ENTRIES, ""), "networks of the zoo")


def names() -> list[str]:
    """The names of all networks."""
    return list(ENTRIES)


def load(name: str, **parameters: object) -> Listing:
    """
    The `.pgraph` text of a network: `load("resnet18", classes=10)`.

    `popgraph.zoo.resnet18(classes=10)` is the same. ModelError for an unknown name, and ParseError
    for an unknown parameter or a value of another type.
    """
    return entry(name)(**parameters)


def parameters(name: str) -> dict[str, Value]:
    """The parameters of a network, and their defaults."""
    return entry(name).parameters


def entry(name: str) -> Entry:
    """The network of a name, in any spelling."""
    found = _NAMES.find(name)
    if found is None:
        what, hint = _NAMES.unknown(name)
        raise ModelError(what, "popgraph.zoo", hint)
    return ENTRIES[found]


def __getattr__(name: str) -> Entry:
    """A network by its name, as a function of its parameters."""
    if name in ENTRIES:
        return ENTRIES[name]
    meant = _NAMES.closest(name)
    hint = f"\n  try: {meant}" if meant else ""
    raise AttributeError(f"module 'popgraph.zoo' has no network {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted([*ENTRIES, "entry", "load", "names", "parameters"])
