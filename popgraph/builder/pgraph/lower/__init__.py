"""Lowering of `.pgraph` texts to the onnx dialect, and their training sections."""
