"""ONNX's backend test suite: cases, groups, isolated runs, and the report."""
