"""The operators of onnxruntime that exporters and its optimizer write, each by ONNX's own."""
