"""The graphcore dialect: the computation of a network as pure functions of tensors."""

from __future__ import annotations

from xdsl.ir import Dialect

from popgraph.dialects.graphcore.activations import *
from popgraph.dialects.graphcore.angles import *
from popgraph.dialects.graphcore.arithmetic import *
from popgraph.dialects.graphcore.base import *
from popgraph.dialects.graphcore.batch_norm import *
from popgraph.dialects.graphcore.broadcasting import *
from popgraph.dialects.graphcore.collectives import *
from popgraph.dialects.graphcore.contractions import *
from popgraph.dialects.graphcore.control import *
from popgraph.dialects.graphcore.exchanges import *
from popgraph.dialects.graphcore.functions import *
from popgraph.dialects.graphcore.identities import *
from popgraph.dialects.graphcore.logic import *
from popgraph.dialects.graphcore.lookup import *
from popgraph.dialects.graphcore.losses import *
from popgraph.dialects.graphcore.movement import *
from popgraph.dialects.graphcore.nll import *
from popgraph.dialects.graphcore.normalization import *
from popgraph.dialects.graphcore.order import *
from popgraph.dialects.graphcore.pooling import *
from popgraph.dialects.graphcore.quantization import *
from popgraph.dialects.graphcore.random import *
from popgraph.dialects.graphcore.reductions import *
from popgraph.dialects.graphcore.rounding import *
from popgraph.dialects.graphcore.scatter import *
from popgraph.dialects.graphcore.softmax import *
from popgraph.dialects.graphcore.words import *

GRAPHCORE = Dialect("graphcore", [*OPERATIONS, *CONTROL, *COLLECTIVES, ExchangeOp])
