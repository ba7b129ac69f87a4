"""The same bits on every target, for every number of threads and of rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from hypothesis import given
from xdsl.dialects.builtin import ModuleOp

from popgraph import Options
from popgraph.engine import build_c
from popgraph.passes.base import Compilation
from popgraph.passes.options import PORTABLE, Training
from popgraph.support.machine import EMBEDDED, TARGETS, Machine
from popgraph.testing import networks, training_controlled, training_networks

MACHINES = [TARGETS["avx512"], TARGETS["avx2"], TARGETS["sse2"], EMBEDDED["armv7e-m"]]
