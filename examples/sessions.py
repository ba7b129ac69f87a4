"""Run a model by the API of onnxruntime: options, bound memory, metadata and errors."""

from __future__ import annotations

import numpy as np
from onnx import parser

import popgraph.ort as onnxruntime  # `import onnxruntime` runs the same program
from popgraph.ort.capi.onnxruntime_pybind11_state import InvalidArgument

MODEL = """
<ir_version: 8, opset_import: ["" : 18], producer_name: "examples">
classifier (float[batch, 4] x) => (float[batch, 3] probabilities, int64[batch] label)
<float[4, 3] w = {1, 0, 0, 0, 1, 0, 0, 0, 1, -1, 0, 1}>
{
    scores = MatMul(x, w)
    probabilities = Softmax <axis = -1> (scores)
    label = ArgMax <axis = -1, keepdims = 0> (probabilities)
}
"""


def main() -> None:
    """Runs the session and checks its outputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    content = parser.parse_model(MODEL).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    for one in (*session.get_inputs(), *session.get_outputs()):
        print(f"{one.name}: {one.type}, shape {one.shape}")
    print("made by", session.get_modelmeta().producer_name)

    x = np.array([[3, 1, 0, 0], [0, 0, 1, 2]], np.float32)
    probabilities, label = session.run(None, {"x": x})
    print("labels", label.tolist(), "with", probabilities.max(axis=-1).round(2).tolist())

    # Bound memory is filled by each run.
    binding, made = session.io_binding(), np.zeros((2, 3), np.float32)
    binding.bind_cpu_input("x", x)
    binding.bind_output("probabilities", "cpu", 0, np.float32, made.shape, made.ctypes.data)
    session.run_with_iobinding(binding)
    assert np.array_equal(made, probabilities)

    try:
        session.run(["labels"], {"x": x})
    except InvalidArgument as error:
        print(f"an error says what to do: {error}")


if __name__ == "__main__":
    main()
