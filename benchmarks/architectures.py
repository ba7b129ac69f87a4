"""
Networks of torchvision, timm and transformers, with random weights: nothing is downloaded.

    python benchmarks/architectures.py    prints the packages
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import onnx


@dataclass(frozen=True)
class Architecture:
    """The package, constructor and input shapes of a network."""

    package: str
    make: Callable[[Any], Any]
    """Constructs the network from the package's module."""
    inputs: Mapping[str, tuple[int, ...]]
    """Input shapes; `input_ids` and similar inputs are integers."""


def _classifier(name: str) -> Architecture:
    def make(torchvision: Any) -> Any:
        return getattr(torchvision.models, name)(weights=None)

    return Architecture("torchvision", make, {"x": (1, 3, 224, 224)})


def _timm(name: str, size: int = 224) -> Architecture:
    def make(timm: Any) -> Any:
        timm.layers.set_fused_attn(False)  # The export of fused attention requires a newer opset.
        return timm.create_model(name, pretrained=False, exportable=True)

    return Architecture("timm", make, {"x": (1, 3, size, size)})


def _segmentation(torchvision: Any) -> Any:
    make = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large
    return make(weights=None, weights_backbone=None)


PLAIN = {"attn_implementation": "eager", "use_cache": False}
SMALL = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
TEXT = {**PLAIN, **SMALL, "intermediate_size": 1024, "vocab_size": 1000}
WHISPER = {"d_model": 256, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
T5 = {"d_model": 256, "d_ff": 1024, "num_layers": 2, "num_heads": 4, "vocab_size": 1000}

ARCHITECTURES = {
    **{
        name: _classifier(name)
        for name in (
            *("resnet18", "resnext50_32x4d", "mobilenet_v3_small", "efficientnet_b0"),
            *("regnet_y_400mf", "convnext_tiny", "swin_t", "vit_b_16"),
        )
    },
    "deeplabv3": Architecture("torchvision", _segmentation, {"x": (1, 3, 520, 520)}),
    "r3d_18": Architecture(
        "torchvision", lambda it: it.models.video.r3d_18(weights=None), {"x": (1, 3, 8, 112, 112)}
    ),
    **{
        name: _timm(name)
        for name in ("mobilenetv4_conv_small", "efficientvit_m0", "coatnet_0_rw_224")
    },
    "fastvit_t8": _timm("fastvit_t8", 256),
    "bert": Architecture(
        "transformers", lambda it: it.BertModel(it.BertConfig(**TEXT)), {"input_ids": (1, 128)}
    ),
    "deberta": Architecture(
        "transformers",
        lambda it: it.DebertaV2Model(it.DebertaV2Config(**TEXT)),
        {"input_ids": (1, 128)},
    ),
    "qwen3": Architecture(
        "transformers",
        lambda it: it.Qwen3ForCausalLM(it.Qwen3Config(**TEXT, num_key_value_heads=2)),
        {"input_ids": (1, 128), "attention_mask": (1, 128)},
    ),
    "t5": Architecture(
        "transformers",
        lambda it: it.T5ForConditionalGeneration(it.T5Config(**PLAIN, **T5)),
        {"input_ids": (1, 64), "decoder_input_ids": (1, 64)},
    ),
    "whisper_encoder": Architecture(
        "transformers",
        lambda it: it.WhisperModel(it.WhisperConfig(**PLAIN, **WHISPER, encoder_layers=3)).encoder,
        {"input_features": (1, 80, 3000)},
    ),
    "segformer": Architecture(
        "transformers",
        lambda it: it.SegformerForSemanticSegmentation(it.SegformerConfig(num_labels=20)),
        {"pixel_values": (1, 3, 224, 224)},
    ),
}
"""{name in tables: network}."""


def missing(name: str) -> str:
    """The command that installs the missing package of a network; "" if it is present."""
    package = ARCHITECTURES[name].package
    return "" if find_spec(package) else f"pip install {package}"


def exported(name: str) -> onnx.ModelProto:
    """The network as ONNX, for inference."""
    import torch  # Listing the networks does not need PyTorch.

    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # The fast path's operator cannot be exported.
    each = ARCHITECTURES[name]
    network = each.make(import_module(each.package)).eval()

    class FirstResult(torch.nn.Module):
        """Takes positional inputs and returns a single tensor."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *values: torch.Tensor) -> torch.Tensor:
            found = self.network(**dict(zip(each.inputs, values, strict=True)))
            while not isinstance(found, torch.Tensor):
                found = next(iter(found.values() if isinstance(found, Mapping) else found))
            return found

    values = tuple(
        torch.ones(shape, dtype=torch.int64)
        if name.endswith(("_ids", "_mask"))
        else torch.randn(shape)
        for name, shape in each.inputs.items()
    )
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            FirstResult(),
            values,
            file,
            dynamo=False,
            opset_version=17,
            input_names=list(each.inputs),
            output_names=["y"],
        )
    return onnx.load_from_string(file.getvalue())


if __name__ == "__main__":
    for package in sorted({each.package for each in ARCHITECTURES.values()}):
        print(package)
