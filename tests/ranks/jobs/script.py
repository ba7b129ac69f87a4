"""A PopART program with replicas, written without regard to ranks."""

import numpy as np
import popart

builder = popart.Builder()
x = builder.addInputTensor("FLOAT", [2, 3])
w = builder.addInitializedInputTensor(np.full((3, 2), 0.5, np.float32), "w")
y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([x, w])])
loss = builder.aiGraphcore.l1loss([y], 0.1)
options = popart.SessionOptions()
options.enableReplicatedGraphs, options.replicatedGraphCount = True, 4
session = popart.TrainingSession(
    builder.getModelProto(),
    popart.DataFlow(2, {loss: popart.AnchorReturnType("All")}),
    loss,
    popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, False)}),
    popart.DeviceManager().acquireAvailableDevice(4),
    userOptions=options,
)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
data = np.random.default_rng(0).normal(size=(2, 4, 2, 3)).astype(np.float32)
for _ in range(3):
    session.run(popart.PyStepIO({x: data}, anchors))
    print(anchors[loss].shape, " ".join(f"{value:.5f}" for value in anchors[loss].ravel()))
session.modelToHost("trained.onnx")
weights = {"w": np.zeros((3, 2), np.float32)}
session.readWeights(popart.PyWeightsIO(weights))
print(np.array2string(weights["w"], precision=5))
