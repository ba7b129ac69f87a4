"""For test suites, also of users: Hypothesis strategies for programs, checks of equivalence."""

from __future__ import annotations

from popgraph.backends.reference.meaning import assert_close, assert_same_meaning, random_inputs
from popgraph.builder.onnx.difference import model_difference
from popgraph.dialects.check import check_ir
from popgraph.testing.aliasing import aliased
from popgraph.testing.control import controlled, training_controlled
from popgraph.testing.convolutions import (
    learning_convolutions,
    separable_convolutions,
    volumes,
    wide_convolutions,
)
from popgraph.testing.onnx_models import onnx_models
from popgraph.testing.operators import attentions, clamps, lookups, recurrences, selections
from popgraph.testing.products import (
    block_products,
    half_products,
    integer_products,
    narrow_products,
    products,
    quantized_products,
    roundings,
    scaled_weights,
    single_products,
)
from popgraph.testing.specs import DISTURBANCE, Constant, Network, Node, build_network
from popgraph.testing.strategies import networks, training_networks

__all__ = [
    "block_products",
    "DISTURBANCE",
    "Constant",
    "Network",
    "Node",
    "aliased",
    "assert_close",
    "assert_same_meaning",
    "attentions",
    "build_network",
    "check_ir",
    "clamps",
    "controlled",
    "learning_convolutions",
    "lookups",
    "model_difference",
    "half_products",
    "narrow_products",
    "networks",
    "onnx_models",
    "random_inputs",
    "products",
    "recurrences",
    "separable_convolutions",
    "training_controlled",
    "training_networks",
    "quantized_products",
    "roundings",
    "scaled_weights",
    "selections",
    "single_products",
    "volumes",
    "integer_products",
    "wide_convolutions",
]
