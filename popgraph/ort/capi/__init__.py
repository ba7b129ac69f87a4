"""The module names under which programs import onnxruntime's exceptions."""
