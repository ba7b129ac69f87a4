"""A PopART program of three pipeline stages on an IPU each, written without regard to ranks."""

import numpy as np
import popart

rng = np.random.default_rng(0)
builder = popart.Builder()
y = x = builder.addInputTensor("FLOAT", [4, 3])
names = [
    builder.addInitializedInputTensor(rng.normal(size=(3, 3)).astype(np.float32), f"w{at}")
    for at in range(3)
]
for ipu, name in enumerate(names):
    with builder.virtualGraph(ipu), builder.pipelineStage(ipu):
        y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([y, name])])
        if ipu == 2:
            loss = builder.aiGraphcore.l1loss([y], 0.1)
options = popart.SessionOptions()
options.virtualGraphMode = popart.VirtualGraphMode.Manual
options.enablePipelining = options.enableGradientAccumulation = True
options.accumulationFactor = 6
session = popart.TrainingSession(
    builder.getModelProto(),
    popart.DataFlow(2, {loss: popart.AnchorReturnType("All")}),
    loss,
    popart.Adam({"defaultLearningRate": (0.01, False)}),
    popart.DeviceManager().acquireAvailableDevice(4),
    userOptions=options,
)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
data = rng.normal(size=(2, 6, 4, 3)).astype(np.float32)
for _ in range(3):
    session.run(popart.PyStepIO({x: data}, anchors))
    print(" ".join(f"{value:.4f}" for value in anchors[loss].ravel()))
session.modelToHost("trained.onnx")
weights = {name: np.zeros((3, 3), np.float32) for name in names}
session.readWeights(popart.PyWeightsIO(weights))
print(np.array2string(np.stack(list(weights.values())), precision=4))
