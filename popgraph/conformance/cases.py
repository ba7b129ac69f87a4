"""The cases of ONNX's test suite of backends, with the arrays that go in and must come out."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import (
    ModelProto,
    NodeProto,
    OptionalProto,
    SequenceProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    numpy_helper,
)
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import DATA_DIR, load_model_tests
from onnx.backend.test.runner import Runner

from popgraph.conformance.corrected import what_was_corrected
from popgraph.conformance.groups import nodes_of

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
"""As the onnx package has them."""
Arrays: TypeAlias = Sequence[Any]

INSTALLED = Path(DATA_DIR)
"""Where the onnx package has its tests, in a folder for each kind."""
SHIPPED, MODELS = "onnx/backend/test/data/light/", "light"
"""Where models of the last kind are said to be, and the folder beside the kinds in which they are;
the others would be downloads."""
DRAWN = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
}  # fmt: skip
"""Operators whose numbers ONNX does not define."""
ROUNDED = ("test_dft_inverse",)
"""Of what is 0, tests of such names want the rounding errors of NumPy's single precision, which
exceed the margin that they leave."""


@dataclass(frozen=True, eq=False)
class Case:
    """One test: a model, and what it gives for what."""

    kind: str
    found: TestCase
    data: Path = INSTALLED
    """The folder of its kind's folder."""
    suites: tuple[str, ...] = (f"onnx-{onnx.__version__}",)
    """All that have it, byte by byte."""

    @property
    def name(self) -> str:
        """As in ONNX's own lists, where `_cpu` follows."""
        return str(self.found.name)

    @property
    def model(self) -> ModelProto:
        """As it is in memory, or read anew."""
        if self.found.model is not None:
            return self.found.model
        return onnx.load(self._file())

    def data_sets(self) -> list[tuple[Arrays, Arrays]]:
        """Inputs in the order of the model's, and the outputs that are expected of them."""
        if self.found.data_sets is not None:
            return [
                ([_normal(value) for value in inputs], [_normal(value) for value in outputs])
                for inputs, outputs in self.found.data_sets
            ]
        if self.found.model_dir is not None:
            folders = sorted(Path(self.found.model_dir).glob("test_data_set*"))
            return [_data_set(self.model, folder) for folder in folders]
        return [_shipped_data_set(self.model, self._file())]

    @property
    def is_here(self) -> bool:
        """Whether its model need not be downloaded."""
        url = self.found.url
        return url is None or (url.startswith(SHIPPED) and bool(_outputs_beside(self._file())))

    def why_skipped(self) -> str:
        """Why nobody can run it, or nothing."""
        if not self.is_here:
            return f"its model is a download ({self.found.url})"
        if self._draws():
            return "it draws random numbers, and expects those of NumPy"
        if self.name.startswith(ROUNDED):
            return "it expects rounding errors of single precision where exact results are 0"
        return what_was_corrected(self.name, self.suites)

    def _draws(self) -> bool:
        model = self.model
        nodes = list(nodes_of(model.graph))
        if DRAWN & {node.op_type for node in nodes}:
            return True
        dropouts = [node for node in nodes if node.op_type == "Dropout" and len(node.input) == 3]
        return bool(dropouts) and any(
            _drops(node, dict(zip((info.name for info in model.graph.input), inputs, strict=False)))
            for node in dropouts
            for inputs, _ in self.data_sets()
        )

    def _file(self) -> Path:
        if self.found.model_dir is not None:
            return Path(self.found.model_dir) / "model.onnx"
        return self.data / MODELS / PurePosixPath(str(self.found.url)).name

    def files(self) -> list[Path]:
        """All that it consists of, unless it is in memory."""
        if self.found.model_dir is not None:
            return sorted(each for each in Path(self.found.model_dir).rglob("*") if each.is_file())
        return [self._file(), *_outputs_beside(self._file())] if self.is_here else []


def _drops(node: NodeProto, given: Mapping[str, Any]) -> bool:
    """Whether a Dropout is told to train, with a ratio that is not zero."""
    _, ratio, training = node.input
    return bool(given.get(training)) and bool(given.get(ratio, 0.5))


def _outputs_beside(model: Path) -> list[Path]:
    return sorted(model.parent.glob(f"{model.stem}_output_*.pb"), key=_number)


def _number(path: Path) -> int:
    """That at the end of its name: 10 follows 9."""
    return int(path.stem.rpartition("_")[2])


def _normal(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _data_set(model: ModelProto, folder: Path) -> tuple[Arrays, Arrays]:
    """A folder of messages."""
    graph = model.graph
    return _values(folder, "input", graph.input), _values(folder, "output", graph.output)


def _values(folder: Path, name: str, infos: Iterable[ValueInfoProto]) -> list[Any]:
    """In a model of old, inputs that are not given follow: they have initializers."""
    files = sorted(folder.glob(f"{name}_*.pb"), key=_number)
    pairs = zip(files, infos, strict=False)
    return [_value(file.read_bytes(), info.type) for file, info in pairs]


def _value(content: bytes, type_: TypeProto) -> Any:
    """A message of the type that an input or an output has."""
    match type_.WhichOneof("value"):
        case "sequence_type":
            return numpy_helper.to_list(SequenceProto.FromString(content))
        case "optional_type":
            return _optional(OptionalProto.FromString(content))
        case _:
            return _tensor(TensorProto.FromString(content), type_.tensor_type.elem_type)


def _tensor(message: TensorProto, element: int) -> Any:
    """Releases before 1.19, for which NumPy had no such type, wrote the bits of bfloat16."""
    if (element, message.data_type) == (TensorProto.BFLOAT16, TensorProto.UINT16):
        message.data_type = element
    return numpy_helper.to_array(message)


def _optional(message: OptionalProto) -> Any:
    """Release 1.10 wrote a tensor without a type where there is none."""
    empty = message.elem_type == OptionalProto.TENSOR and not message.tensor_value.data_type
    return None if empty else numpy_helper.to_optional(message)


def _shipped_data_set(model: ModelProto, file: Path) -> tuple[Arrays, Arrays]:
    """The inputs are made as ONNX's runner makes them, the outputs lie beside the model."""
    known = {tensor.name for tensor in model.graph.initializer}
    inputs = [
        Runner.generate_dummy_data(info, name=file.stem)
        for info in model.graph.input
        if info.name not in known
    ]
    outputs = [
        numpy_helper.to_array(TensorProto.FromString(path.read_bytes()))
        for path in _outputs_beside(file)
    ]
    return inputs, outputs


@cache
def all_cases() -> tuple[Case, ...]:
    """Every test of the onnx package that is installed."""
    return tuple(
        Case(kind, found)
        for kind in KINDS
        for found in sorted(_found(kind), key=lambda found: found.name)
    )


def _found(kind: str) -> Sequence[TestCase]:
    return node_cases() if kind == "node" else load_model_tests(kind=kind)


@cache
def node_cases() -> tuple[TestCase, ...]:
    """
    Those of kind `node`, in ONNX's order.

    ONNX makes them when its modules are imported, which happens once: what the first caller asks
    for is all that there ever is, of the numbers that NumPy's generator draws at that time. Who
    asks here first gets what all get. Some take overflows on purpose.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"), _drawn_alike():
        warnings.simplefilter("ignore")
        return tuple(load_model_tests(kind="node"))


@contextmanager
def _drawn_alike() -> Iterator[None]:
    """Random numbers that are the same in every process; generators are left as they were."""
    numbers, choices = np.random.get_state(), random.getstate()
    np.random.seed(0)
    random.seed(0)
    try:
        yield
    finally:
        np.random.set_state(numbers)
        random.setstate(choices)


def cases_like(pattern: str) -> list[Case]:
    """Those of the installed package in whose names a regular expression is found."""
    return like(pattern, all_cases())


def like(pattern: str, cases: Iterable[Case]) -> list[Case]:
    """Those in whose names a regular expression is found."""
    return [case for case in cases if re.search(pattern, case.name)]
