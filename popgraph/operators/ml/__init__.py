"""Operators of ai.onnx.ml: features, dictionaries, and models of classical machine learning."""
