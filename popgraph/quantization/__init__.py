"""Quantization of trained models: `popgraph.quantize`."""
