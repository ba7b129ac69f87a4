"""The table of contents: which module of this package defines which operators."""

from __future__ import annotations

from popgraph.support.pages import pages

_TABLE = """
activations com.microsoft Gelu BiasGelu FastGelu QuickGelu BiasSoftmax BiasDropout
alignments com.microsoft DynamicTimeWarping BifurcationDetector
attention com.microsoft Attention MultiHeadAttention
attentive_loops com.microsoft AttnLSTM
beam_search ai.graphcore CtcBeamSearchDecoder
decoding_attention com.microsoft DecoderMaskedMultiHeadAttention
delta_net com.microsoft GatedDeltaNet
experts com.microsoft MoE MoEGroupRouter QMoE
gates com.microsoft ScaledSiLU GatedAdd GatedRMSNorm LinearAttentionGate BranchwiseRMSNorm
gates com.microsoft HyperConnectionPreMix HyperConnectionPostMix EngramGate
generation com.microsoft GreedySearch
grouped_attention com.microsoft RotaryEmbedding MRotaryEmbedding GroupQueryAttention
grouped_attention com.microsoft SparseAttention
hashes com.microsoft Unique MurmurHash3 NGramHashMapping WordConvEmbedding
loops com.microsoft Inverse DynamicQuantizeLSTM
movement com.microsoft SampleOp ExpandDims GatherND Trilu Range Pad UnfoldTensor NGramRepeatBlock
movement com.microsoft CDist GridSample NhwcMaxPool ConvTransposeWithDynamicPads CropAndResize
movement com.microsoft MaxpoolWithMask
normalizations ai.onnx SimplifiedLayerNormalization
normalizations com.microsoft SkipLayerNormalization SkipSimplifiedLayerNormalization
normalizations com.microsoft EmbedLayerNormalization
packed_rows com.microsoft GatherPacked
packed_weights com.microsoft MatMulNBits MatMulBnb4 GatherBlockQuantized
products com.microsoft FusedMatMul TransposeMatMul FusedGemm FusedConv NhwcConv NhwcFusedConv
quantized com.microsoft QuantizeLinear DequantizeLinear QLinearAdd QLinearMul QLinearWhere
quantized com.microsoft QLinearSigmoid QLinearLeakyRelu QLinearSoftmax QLinearGlobalAveragePool
quantized com.microsoft QLinearAveragePool QLinearConv QLinearConcat QGemm MatMulIntegerToFloat
quantized com.microsoft DynamicQuantizeMatMul MatMulInteger16 QAttention QEmbedLayerNormalization
recurrences com.microsoft CausalConvWithState LinearAttention
requests com.microsoft VarlenCausalConvWithState VarlenNGramHashMapping
"""

PAGES = pages(__package__, _TABLE)
"""A network uses few of them, and most networks none."""
