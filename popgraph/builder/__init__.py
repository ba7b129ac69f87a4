"""Front ends: `Builder` calls, ONNX models, `.pgraph` text."""
