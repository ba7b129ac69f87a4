"""The operators of a builder: opset versions, `ai.graphcore`, enums, tensor infos."""
