/* Times of calls in a page: `measure` of web.py imports this. */

/* Milliseconds of calls that alternate in rounds: the least median of samples of 2 ms or more. */
async function race(contestants, { rounds, milliseconds }) {
  const counts = {};
  for (const [name, call] of Object.entries(contestants)) {
    for (let at = 0; at < 5; at++) await call();
    const start = performance.now();
    for (let at = 0; at < 5; at++) await call();
    counts[name] = Math.ceil((2 * 5) / Math.max(performance.now() - start, 0.01));
  }
  const best = Object.fromEntries(Object.keys(contestants).map((name) => [name, Infinity]));
  for (let round = 0; round < rounds; round++) {
    for (const [name, call] of Object.entries(contestants)) {
      const samples = [];
      const end = performance.now() + milliseconds;
      while (performance.now() < end || samples.length < 3) {
        const start = performance.now();
        for (let at = 0; at < counts[name]; at++) await call();
        samples.push((performance.now() - start) / counts[name]);
      }
      samples.sort((a, b) => a - b);
      best[name] = Math.min(best[name], samples[Math.floor(samples.length / 2)]);
    }
  }
  return best;
}

const noise = (count) => Float32Array.from({ length: count }, (_, at) => Math.sin(at * 12.9898));
/** The folder of the peers. */
const MODULES = new URL("node_modules/", import.meta.url).href;

const product = (shape) => shape.reduce((all, one) => all * one, 1);

/* Inference: onnxruntime-web's wasm backend, with the same model and inputs. */
export async function inference(name, options) {
  const ours = await (await import(`./${name}_run/net.js`)).load();
  const { description } = await import(`./${name}_run/net.js`);
  const ort = await import(`${MODULES}onnxruntime-web/dist/ort.wasm.min.mjs`);
  ort.env.wasm.wasmPaths = `${MODULES}onnxruntime-web/dist/`;
  ort.env.wasm.numThreads = options.threads;
  const session = await ort.InferenceSession.create(`./${name}.onnx`, {
    executionProviders: ["wasm"], graphOptimizationLevel: "all",
  });
  const [{ name: label, shape }] = description.model.functions.run.inputs;
  const x = noise(product(shape));
  const feeds = { [label]: new ort.Tensor("float32", x, shape) };
  const [output] = session.outputNames;
  const wanted = (await session.run(feeds))[output].data;
  const found = ours.run({ [label]: x })[output];
  const apart = Math.max(...found.map((one, at) => Math.abs(one - wanted[at])));
  const times = await race(
    { popgraph: () => ours.run({ [label]: x }), "onnxruntime-web": () => session.run(feeds) },
    options,
  );
  return { times, apart };
}

const LAYERS = {
  mlp: (tf) => [
    tf.layers.dense({ units: 256, activation: "relu", inputShape: [784] }),
    tf.layers.dense({ units: 128, activation: "relu" }),
    tf.layers.dense({ units: 10 }),
  ],
  lenet: (tf) => [
    tf.layers.conv2d({
      filters: 6, kernelSize: 5, padding: "same", activation: "relu", inputShape: [28, 28, 1],
    }),
    tf.layers.maxPooling2d({ poolSize: 2 }),
    tf.layers.conv2d({ filters: 16, kernelSize: 5, activation: "relu" }),
    tf.layers.maxPooling2d({ poolSize: 2 }),
    tf.layers.flatten(),
    tf.layers.dense({ units: 120, activation: "relu" }),
    tf.layers.dense({ units: 84, activation: "relu" }),
    tf.layers.dense({ units: 10 }),
  ],
};

function script(source) {
  return new Promise((resolve, reject) => {
    const element = Object.assign(document.createElement("script"), { src: source });
    element.onload = resolve;
    element.onerror = () => reject(new Error(source));
    document.head.append(element);
  });
}

/* A step of Adam in TensorFlow.js, with the loss read as ours is. */
async function theirs(tf, backend, name, x, labels, inner) {
  await tf.setBackend(backend);
  await tf.ready();
  const model = tf.sequential({ layers: LAYERS[name](tf) });
  const optimizer = tf.train.adam(0.001);
  const shape = [labels.length, ...inner];
  return async () => {
    const images = tf.tensor(x, shape);
    const wanted = tf.tidy(() => tf.oneHot(tf.tensor1d(labels, "int32"), 10).toFloat());
    const loss = optimizer.minimize(
      () => tf.losses.softmaxCrossEntropy(wanted, model.apply(images, { training: true })), true,
    );
    const [value] = await loss.data();
    tf.dispose([images, wanted, loss]);
    return value;
  };
}

/* Training: TensorFlow.js in one of its backends, with a network of the same layers. */
export async function training(name, backend, options) {
  const { load, description } = await import(`./${name}_step/net.js`);
  const ours = await load();
  await script(`${MODULES}@tensorflow/tfjs/dist/tf.min.js`);
  if (backend === "wasm") {
    const folder = `${MODULES}@tensorflow/tfjs-backend-wasm/dist/`;
    await script(`${folder}tf-backend-wasm.min.js`);
    tf.wasm.setWasmPaths(folder);
    tf.wasm.setThreadsCount(options.threads);
  }
  const [{ name: label, shape }] = description.model.functions.step.inputs;
  const x = noise(product(shape));
  const labels = Int32Array.from({ length: shape[0] }, (_, at) => at % 10);
  const inner = name === "lenet" ? [28, 28, 1] : shape.slice(1);
  const step = await theirs(tf, backend, name, x, labels, inner);
  const times = await race(
    {
      popgraph: () => ours.step({ [label]: x, labels }).loss,
      [`tensorflow.js ${backend}`]: step,
    },
    options,
  );
  return { times, losses: [ours.step({ [label]: x, labels }).loss, await step()] };
}
