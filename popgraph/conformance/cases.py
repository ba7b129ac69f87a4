"""The cases of ONNX's backend test suite, and the tests that later releases corrected."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias

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

from popgraph.conformance.groups import nodes_of

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
"""Kinds of tests in the onnx package."""
Arrays: TypeAlias = Sequence[Any]
Bounds: TypeAlias = tuple[float | None, ...]
"""Bounds of the errors of outputs; None: only the type and the shape are compared."""

INSTALLED = Path(DATA_DIR)
"""The onnx package's folder of tests, with a subfolder per kind."""
SHIPPED, MODELS = "onnx/backend/test/data/light/", "light"
"""
URL prefix of models of the kind `real` that are included in the package, and their folder; other
models would be downloads.
"""
DRAWN = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
}  # fmt: skip
"""Operators with random results."""
ROUNDED = ("test_dft_inverse",)
"""Tests that compare zeros with the rounding errors of NumPy's f32, beyond their own tolerance."""


@dataclass(frozen=True, eq=False)
class Case:
    """A test: a model with inputs and expected outputs."""

    kind: str
    found: TestCase
    data: Path = INSTALLED
    """The folder that contains the folders of kinds."""
    suites: tuple[str, ...] = (f"onnx-{onnx.__version__}",)
    """All suites with a byte-identical copy of the test."""
    bounds: Bounds = ()
    """The largest absolute error of each output, instead of one for all."""

    @property
    def name(self) -> str:
        """The name in ONNX's lists, without the suffix `_cpu`."""
        return str(self.found.name)

    @property
    def model(self) -> ModelProto:
        """The model, read from its file if it is not in memory."""
        if self.found.model is not None:
            return self.found.model
        return onnx.load(self._file())

    def data_sets(self) -> list[tuple[Arrays, Arrays]]:
        """Pairs of inputs, in the model's order, and expected outputs."""
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
        """Whether the model is available without a download."""
        url = self.found.url
        return url is None or (url.startswith(SHIPPED) and bool(_outputs_of_files(self._file())))

    def why_skipped(self) -> str:
        """Why the test cannot be run; empty if it can."""
        if not self.is_here:
            return f"its model is a download ({self.found.url})"
        if self._draws():
            return "it draws random numbers, and expects those of NumPy"
        if self.name.startswith(ROUNDED):
            return "it expects rounding errors of single precision where exact results are 0"
        return corrections_of(self.name, self.suites)

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
        """The files of the test; empty if it is in memory."""
        if self.found.model_dir is not None:
            return sorted(each for each in Path(self.found.model_dir).rglob("*") if each.is_file())
        return [self._file(), *_outputs_of_files(self._file())] if self.is_here else []


def _drops(node: NodeProto, given: Mapping[str, Any]) -> bool:
    """Whether a Dropout runs in training mode with a nonzero ratio."""
    _, ratio, training = node.input
    return bool(given.get(training)) and bool(given.get(ratio, 0.5))


def _outputs_of_files(model: Path) -> list[Path]:
    return sorted(model.parent.glob(f"{model.stem}_output_*.pb"), key=_number)


def _number(path: Path) -> int:
    """The number at the end of the name, so that 10 sorts after 9."""
    return int(path.stem.rpartition("_")[2])


def _normal(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _data_set(model: ModelProto, folder: Path) -> tuple[Arrays, Arrays]:
    """Reads a folder of protobuf messages."""
    graph = model.graph
    return _values(folder, "input", graph.input), _values(folder, "output", graph.output)


def _values(folder: Path, name: str, infos: Iterable[ValueInfoProto]) -> list[Any]:
    """
    Reads values by number.

    Older models list initializers last among inputs; these have no file.
    """
    files = sorted(folder.glob(f"{name}_*.pb"), key=_number)
    pairs = zip(files, infos, strict=False)
    return [_value(file.read_bytes(), info.type) for file, info in pairs]


def _value(content: bytes, type_: TypeProto) -> Any:
    """Parses a message by the type of its input or output."""
    match type_.WhichOneof("value"):
        case "sequence_type":
            return numpy_helper.to_list(SequenceProto.FromString(content))
        case "optional_type":
            return _optional(OptionalProto.FromString(content))
        case _:
            return _tensor(TensorProto.FromString(content), type_.tensor_type.elem_type)


def _tensor(message: TensorProto, element: int) -> Any:
    """Parses a tensor; releases before 1.19 stored bfloat16 as uint16."""
    if (element, message.data_type) == (TensorProto.BFLOAT16, TensorProto.UINT16):
        message.data_type = element
    return numpy_helper.to_array(message)


def _optional(message: OptionalProto) -> Any:
    """Parses an optional; release 1.10 wrote an untyped tensor for an absent value."""
    empty = message.elem_type == OptionalProto.TENSOR and not message.tensor_value.data_type
    return None if empty else numpy_helper.to_optional(message)


def _shipped_data_set(model: ModelProto, file: Path) -> tuple[Arrays, Arrays]:
    """Generates the inputs as ONNX's runner does; the outputs are stored beside the model."""
    known = {tensor.name for tensor in model.graph.initializer}
    inputs = [
        Runner.generate_dummy_data(info, name=file.stem)
        for info in model.graph.input
        if info.name not in known
    ]
    outputs = [
        numpy_helper.to_array(TensorProto.FromString(path.read_bytes()))
        for path in _outputs_of_files(file)
    ]
    return inputs, outputs


@cache
def all_cases() -> tuple[Case, ...]:
    """All tests of the installed onnx package."""
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
    The cases of kind `node`, in ONNX's order.

    ONNX creates them once, when its modules are imported, with random numbers of NumPy's generator.
    This function must be the first to load them, so that all processes see the same numbers. Some
    cases overflow on purpose.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"), _seeded_alike():
        warnings.simplefilter("ignore")
        return tuple(load_model_tests(kind="node"))


@contextmanager
def _seeded_alike() -> Iterator[None]:
    """Seeds the random generators, and restores them afterwards."""
    numbers, choices = np.random.get_state(), random.getstate()
    np.random.seed(0)
    random.seed(0)
    try:
        yield
    finally:
        np.random.set_state(numbers)
        random.setstate(choices)


def cases_matching(pattern: str) -> list[Case]:
    """Cases of the installed package whose names match a regular expression."""
    return matching(pattern, all_cases())


def matching(pattern: str, cases: Iterable[Case]) -> list[Case]:
    """Cases whose names match a regular expression."""
    return [case for case in cases if re.search(pattern, case.name)]


class Correction(NamedTuple):
    """An error in tests of certain releases."""

    names: str
    """Regular expression for the whole name."""
    releases: tuple[str, ...]
    """Releases with the wrong test, of the wheels that were examined."""
    corrected: str
    """The first release with a corrected test."""
    reason: str


CORRECTIONS = (
    Correction(
        "test_resize_upsample_sizes_nearest_(ceil_half_pixel|floor_align_corners"
        "|round_prefer_ceil_asymmetric)",
        ("1.6.0",),
        "1.8.1",
        "its node lacks the nearest_mode of which it expects the elements",
    ),
    Correction(
        "test_unique_not_sorted_without_axis",
        ("1.6.0",),
        "1.8.1",
        "it expects sorted elements of a node that is not to sort",
    ),
    Correction(
        "test_sequence_insert_at_front",
        ("1.8.1",),
        "1.10.2",
        "it expects at the end what is inserted at the front",
    ),
    Correction(
        "test_castlike_(BFLOAT16_to_FLOAT|FLOAT_to_BFLOAT16)(_expanded)?",
        ("1.12.0", "1.14.1"),
        "1.16.2",
        "it feeds another shape than its model says",
    ),
    Correction(
        "test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True",
        ("1.16.2",),
        "1.18.0",
        "its windows count elements behind the padding",
    ),
    Correction(
        "test_cast_FLOAT(16)?_to_U?INT4",
        ("1.16.2", "1.18.0"),
        "1.20.1",
        "it expects the nearest number of what 4 bits do not hold, which is undefined",
    ),
    Correction(
        "test_cast_FLOAT(16)?_to_FLOAT4E2M1",
        ("1.18.0",),
        "1.20.1",
        "it expects 6 of NaN, which the type does not have",
    ),
    Correction(
        "test_qlinearmatmul_[23]D_int8_float(16|32)",
        ("1.16.2", "1.18.0", "1.20.1"),
        "1.22.0",
        "it expects numbers that wrap around at the ends of 8 bits, and not the ends",
    ),
    Correction(
        "test_rotary_embedding_(no_position_ids|with|with_interleaved)_rotary_dim",
        ("1.18.0",),
        "1.20.1",
        "its tables are not half as wide as rotary_embedding_dim",
    ),
    Correction(
        "test_attention_3d(?!.*_expanded).*",
        ("1.18.0",),
        "1.20.1",
        "it takes heads and positions of three-dimensional inputs for one another",
    ),
    Correction(
        "test_attention_4d_gqa(?!.*_expanded).*",
        ("1.18.0",),
        "1.20.1",
        "it gives queries the keys of other groups",
    ),
    Correction(
        "test_attention_[34]d_with_(past_and_present_)?qk_matmul_(softcap|bias.*)(?<!_expanded)",
        ("1.18.0", "1.20.1"),
        "1.22.0",
        "it expects the scores of another step than qk_matmul_output_mode says",
    ),
    Correction(
        "test_l2normalization_axis_0",
        ("1.20.1",),
        "1.22.0",
        "it expects NaN of what is 0 in all elements, and not 0",
    ),
)
"""
For each of them, onnxruntime and the reference of today's onnx contradict the test as PopGraph
does, or reject it. For types that onnxruntime lacks, only the reference was compared.
"""


def corrections_of(name: str, suites: Iterable[str]) -> str:
    """The error in a test of one of these suites; empty if there is none."""
    for found in CORRECTIONS:
        wrong = {f"onnx-{release}" for release in found.releases}
        if wrong.intersection(suites) and re.fullmatch(found.names, name):
            return f"{found.reason}; onnx {found.corrected} has another one"
    return ""
