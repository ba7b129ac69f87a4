"""The com.microsoft operators of onnxruntime, each defined by ONNX's own operators."""
