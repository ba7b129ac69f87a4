"""The ways in: `Builder` calls, ONNX models, `.pgraph` text."""
