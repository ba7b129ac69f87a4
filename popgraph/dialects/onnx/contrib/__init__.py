"""The operators of onnxruntime that exporters and its optimizer write, each by ONNX's own."""

from popgraph.dialects.onnx.contrib import activations as activations
from popgraph.dialects.onnx.contrib import alignments as alignments
from popgraph.dialects.onnx.contrib import attention as attention
from popgraph.dialects.onnx.contrib import attentive_loops as attentive_loops
from popgraph.dialects.onnx.contrib import beam_search as beam_search
from popgraph.dialects.onnx.contrib import decoding_attention as decoding_attention
from popgraph.dialects.onnx.contrib import delta_net as delta_net
from popgraph.dialects.onnx.contrib import experts as experts
from popgraph.dialects.onnx.contrib import gates as gates
from popgraph.dialects.onnx.contrib import generation as generation
from popgraph.dialects.onnx.contrib import grouped_attention as grouped_attention
from popgraph.dialects.onnx.contrib import hashes as hashes
from popgraph.dialects.onnx.contrib import loops as loops
from popgraph.dialects.onnx.contrib import movement as movement
from popgraph.dialects.onnx.contrib import normalizations as normalizations
from popgraph.dialects.onnx.contrib import packed_rows as packed_rows
from popgraph.dialects.onnx.contrib import packed_weights as packed_weights
from popgraph.dialects.onnx.contrib import products as products
from popgraph.dialects.onnx.contrib import quantized as quantized
from popgraph.dialects.onnx.contrib import recurrences as recurrences
from popgraph.dialects.onnx.contrib import requests as requests
from popgraph.dialects.onnx.contrib.call import MICROSOFT as MICROSOFT
