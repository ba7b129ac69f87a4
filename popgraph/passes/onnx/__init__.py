"""Passes over the onnx level, and its lowering to graphcore."""
