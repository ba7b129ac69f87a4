"""ONNX's own test suite of backends: its cases, their groups, isolated runs, and the report."""
