"""The operators that a builder offers: opset versions, ai.graphcore's, enums, tensor infos."""
