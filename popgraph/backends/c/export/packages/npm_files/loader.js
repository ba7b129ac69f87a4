/*
 * Loads the model that MODEL and FILES describe, in browsers and in Node. Each model is an instance
 * of the module with memory of its own, which never grows, so that views of it stay valid.
 */

const ARRAYS = {
  f32: Float32Array, f64: Float64Array, c64: Float32Array, c128: Float64Array,
  f16: Uint16Array, bf16: Uint16Array, i64: BigInt64Array, u64: BigUint64Array,
  i8: Int8Array, i16: Int16Array, i32: Int32Array,
  u8: Uint8Array, u16: Uint16Array, u32: Uint32Array,
};
/* Names of types in safetensors files; others are stored as bytes. */
const STORED = {
  f32: "F32", f64: "F64", f16: "F16", bf16: "BF16", i64: "I64", u64: "U64",
  i8: "I8", i16: "I16", i32: "I32", u8: "U8", u16: "U16", u32: "U32", bool: "BOOL",
};
/* What the module's functions return. */
const BAD_INDEX = 2;

/* A module with one function, which returns a vector: valid only where SIMD is. */
const VECTOR = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0,
  10, 8, 1, 6, 0, 65, 0, 253, 15, 11,
]);

const product = (numbers) => numbers.reduce((all, one) => all * one, 1);
const arrayOf = (tensor) => ARRAYS[tensor.type] ?? Uint8Array;
const isComplex = (tensor) => tensor.type.startsWith("c");
const isScalar = (tensor) => tensor.shape.length === 0 && !isComplex(tensor);
const listed = (tensors) => tensors.map((one) => `"${one.name}"`).join(", ") || "none";
const isNode = typeof process === "object" && Boolean(process.versions?.node);

async function bytesOf(url) {
  if (url.protocol === "file:" && isNode) {
    const files = await import(/* webpackIgnore: true */ /* @vite-ignore */ "node:fs/promises");
    return files.readFile(url);
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${MODEL.name}: ${url} cannot be loaded (${response.status})`);
  return new Uint8Array(await response.arrayBuffer());
}

const loading = new Map();

/* The bytes of a file, or the module in it, loaded once. */
function once(url, make) {
  if (!loading.has(url.href)) {
    const made = bytesOf(url).then(make);
    made.catch(() => loading.delete(url.href));
    loading.set(url.href, made);
  }
  return loading.get(url.href);
}

/* What the model is, for tools: its functions with names, types and shapes. */
export const description = { model: MODEL, arrays: ARRAYS };

/* Whether threads can share memory here: pages need headers for it, see the README. */
const canShare = typeof SharedArrayBuffer === "function" && (isNode || globalThis.crossOriginIsolated);

export async function load(options = {}) {
  const simd = options.simd ?? WebAssembly.validate(VECTOR);
  const threads = options.threads ?? (simd && canShare ? MODEL.threads : 1);
  checkThreads(threads, simd);
  const at = (key) =>
    options.base === undefined
      ? FILES[key]
      : new URL(FILES[key].pathname.split("/").pop(), options.base);
  const kind = threads > 1 ? "threads" : simd ? "simd" : "plain";
  const [module, weights] = await Promise.all([
    once(at(kind), (bytes) => WebAssembly.compile(bytes)),
    MODEL.weights ? once(at("weights"), (bytes) => bytes) : new Uint8Array(0),
  ]);
  if (weights.length !== MODEL.weights) {
    throw new Error(
      `${MODEL.name}: the file of weights has ${weights.length} bytes, not ${MODEL.weights}: ` +
        "it belongs to another export",
    );
  }
  const memory = threads > 1
    ? new WebAssembly.Memory({ initial: MODEL.pages, maximum: MODEL.pages, shared: true })
    : undefined;
  const { exports } = await WebAssembly.instantiate(module, memory ? { env: { memory } } : {});
  exports._initialize();
  const workers = memory ? await startedWorkers(module, memory, threads) : [];
  return new Network(exports, memory ?? exports.memory, weights, simd, workers);
}

function checkThreads(threads, simd) {
  if (!Number.isInteger(threads) || threads < 1 || threads > MODEL.threads) {
    throw new RangeError(
      `${MODEL.name}: threads must be an integer from 1 to ${MODEL.threads}, not ${threads}: ` +
        "`popgraph export --threads` sets the largest number",
    );
  }
  if (threads > 1 && !simd) throw new Error(`${MODEL.name}: threads need SIMD`);
  if (threads > 1 && !canShare) {
    throw new Error(
      `${MODEL.name}: threads need a page that is cross-origin isolated: serve it with the ` +
        "headers Cross-Origin-Opener-Policy: same-origin and " +
        "Cross-Origin-Embedder-Policy: require-corp",
    );
  }
}

class Network {
  #exports;
  #memory;
  #sizes;
  #arrays = {};
  #workers;

  constructor(exports, memory, weights, simd, workers) {
    this.#exports = exports;
    this.#memory = memory;
    this.#workers = workers;
    this.simd = simd;
    this.threads = workers.length + 1;
    let number = 0;
    const next = (type, count) => new type(memory.buffer, exports.address(number++), count);
    next(Uint8Array, weights.length).set(weights);
    if (MODEL.sizes.length) this.#sizes = next(BigInt64Array, MODEL.sizes.length);
    const view = (tensor) =>
      next(arrayOf(tensor), product(tensor.shape) * (isComplex(tensor) ? 2 : 1));
    for (const [verb, { inputs, outputs }] of Object.entries(MODEL.functions)) {
      this.#arrays[verb] = { inputs: inputs.map(view), outputs: outputs.map(view) };
      this[verb] = (given, sizes) => this.#call(verb, given, sizes);
    }
    this.reset();
  }

  run() {
    throw new Error(
      `${MODEL.name} was exported as a training step: it has step(), and no run()`,
    );
  }

  step() {
    throw new Error(
      `${MODEL.name} was exported for inference and cannot train: ` +
        "`popgraph export --train --package npm` exports step()",
    );
  }

  close() {
    this.#workers.forEach((worker) => worker.terminate());
    this.#workers = [];
    this.#exports = undefined;
  }

  reset() {
    if (this.#exports.start()) throw new Error(`${MODEL.name}: memory is not aligned`);
  }

  variable(name) {
    const at = MODEL.variables.findIndex((one) => one.name === name);
    if (at < 0) {
      throw new TypeError(
        `${MODEL.name} has no variable "${name}"; its variables: ${listed(MODEL.variables)}`,
      );
    }
    const tensor = MODEL.variables[at];
    const count = product(tensor.shape) * (isComplex(tensor) ? 2 : 1);
    return new (arrayOf(tensor))(this.#memory.buffer, this.#exports.variable(at), count);
  }

  save() {
    const state = this.#state();
    const header = { __metadata__: { model: MODEL.name } };
    let end = 0;
    for (const { tensor, bytes } of state) {
      const { name, type, shape } = tensor;
      const stored = STORED[type]
        ? { dtype: STORED[type], shape }
        : { dtype: "U8", shape: [bytes.length] };
      header[name] = { ...stored, data_offsets: [end, (end += bytes.length)] };
    }
    const text = JSON.stringify(header);
    const spelled = new TextEncoder().encode(text);
    const start = 8 + Math.ceil(spelled.length / 8) * 8;
    const file = new Uint8Array(start + end).fill(32, 8, start);
    new DataView(file.buffer).setBigUint64(0, BigInt(start - 8), true);
    file.set(spelled, 8);
    for (const { tensor, bytes } of state) {
      file.set(bytes, start + header[tensor.name].data_offsets[0]);
    }
    return file;
  }

  load(given) {
    const { header, data } = parsedState(given);
    const state = this.#state();
    // All is checked before anything is written.
    const found = state.map(({ tensor, bytes }) => {
      const { name, type, shape } = tensor;
      const stored = header[name];
      const owner = header.__metadata__?.model;
      const other = owner === undefined || owner === MODEL.name ? "" : ` of "${owner}"`;
      if (stored === undefined) {
        throw new TypeError(
          `${MODEL.name}.load: the state${other} has no variable "${name}": it is another model's`,
        );
      }
      const wanted = `${STORED[type] ?? "U8"}[${STORED[type] ? shape : bytes.length}]`;
      const is = `${stored.dtype}[${stored.shape}]`;
      if (is !== wanted) {
        throw new TypeError(
          `${MODEL.name}.load: variable "${name}" is ${is} in the state${other}, not ${wanted}`,
        );
      }
      const part = data.subarray(...stored.data_offsets);
      if (part.length !== bytes.length) {
        throw new RangeError(`${MODEL.name}.load: the state is cut off in variable "${name}"`);
      }
      return part;
    });
    state.forEach(({ bytes }, at) => bytes.set(found[at]));
  }

  async saveTo(key) {
    const state = this.save();
    await stored("readwrite", (store) => store.put(state, key));
  }

  async loadFrom(key) {
    const state = await stored("readonly", (store) => store.get(key));
    if (state === undefined) return false;
    this.load(state);
    return true;
  }

  /* The variables as bytes in the module's memory. */
  #state() {
    if (!this.#exports) throw new Error(`${MODEL.name}: the model is closed`);
    if (!MODEL.variables.length) {
      throw new Error(`${MODEL.name} has no state: it keeps nothing between two calls`);
    }
    return MODEL.variables.map((tensor) => {
      const { buffer, byteOffset, byteLength } = this.variable(tensor.name);
      return { tensor, bytes: new Uint8Array(buffer, byteOffset, byteLength) };
    });
  }

  #call(verb, given, sizes) {
    const where = `${MODEL.name}.${verb}`;
    if (!this.#exports) throw new Error(`${where}: the model is closed`);
    const { inputs, outputs } = MODEL.functions[verb];
    const arrays = this.#arrays[verb];
    const numbers = checkedSizes(where, sizes);
    checkNames(where, inputs, given);
    inputs.forEach((tensor) => checkInput(where, tensor, given[tensor.name], numbers));
    numbers.forEach((number, at) => { this.#sizes[at] = BigInt(number); });
    inputs.forEach((tensor, at) => {
      const value = given[tensor.name];
      if (isScalar(tensor)) arrays.inputs[at][0] = value;
      else if (!tensor.axes) arrays.inputs[at].set(value);
      else for (const [to, from, count] of runs(tensor, numbers))
        arrays.inputs[at].set(value.subarray(from, from + count), to);
    });
    const code = this.#exports[verb]();
    if (code === BAD_INDEX) {
      throw new RangeError(`${where}: an index in the inputs is out of range`);
    }
    if (code) throw new Error(`${where}: failed with code ${code}`);
    const found = {};
    outputs.forEach((tensor, at) => {
      found[tensor.name] = taken(tensor, arrays.outputs[at], numbers);
    });
    return found;
  }
}

/* The header and the data of a safetensors file. */
function parsedState(given) {
  if (!(given instanceof ArrayBuffer) && !ArrayBuffer.isView(given)) {
    throw new TypeError(`${MODEL.name}.load takes the bytes that save() returned`);
  }
  const bytes = given instanceof ArrayBuffer
    ? new Uint8Array(given)
    : new Uint8Array(given.buffer, given.byteOffset, given.byteLength);
  try {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const start = 8 + Number(view.getBigUint64(0, true));
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, start)));
    return { header, data: bytes.subarray(start) };
  } catch {
    throw new TypeError(`${MODEL.name}.load: these bytes are not a state that save() returned`);
  }
}

/* The result of a request to the store of states in IndexedDB. */
async function stored(mode, request) {
  if (typeof indexedDB === "undefined") {
    throw new Error(
      `${MODEL.name}: there is no IndexedDB here; write the bytes that save() returns to a file`,
    );
  }
  const promised = (one) => new Promise((resolve, reject) => {
    one.onsuccess = () => resolve(one.result);
    one.onerror = () => reject(one.error);
  });
  const opening = indexedDB.open("popgraph", 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore("states");
  const database = await promised(opening);
  try {
    const transaction = database.transaction("states", mode);
    const done = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    const result = await promised(request(transaction.objectStore("states")));
    await done;
    return result;
  } finally {
    database.close();
  }
}

/* The sizes of a call, in the model's order. */
function checkedSizes(where, sizes) {
  if (sizes !== undefined && !MODEL.sizes.length) {
    throw new TypeError(`${where}: the model has fixed sizes; pass the inputs only`);
  }
  return MODEL.sizes.map(({ name, least, bound }) => {
    const size = sizes?.[name];
    if (!Number.isInteger(size) || size < least || size > bound) {
      throw new RangeError(
        `${where}: size "${name}" must be an integer from ${least} to ${bound}, not ${size}`,
      );
    }
    return size;
  });
}

function checkNames(where, inputs, given) {
  if (given === null || typeof given !== "object" || ArrayBuffer.isView(given)) {
    throw new TypeError(`${where} takes an object of inputs: ${listed(inputs)}`);
  }
  for (const name of Object.keys(given)) {
    if (!inputs.some((one) => one.name === name)) {
      throw new TypeError(`${where} has no input "${name}"; its inputs: ${listed(inputs)}`);
    }
  }
  for (const { name } of inputs) {
    if (given[name] === undefined) throw new TypeError(`${where}: input "${name}" is missing`);
  }
}

function checkInput(where, tensor, value, numbers) {
  const type = arrayOf(tensor);
  if (isScalar(tensor)) {
    const wanted = type === BigInt64Array || type === BigUint64Array ? "bigint" : "number";
    if (typeof value === wanted) return;
    throw new TypeError(`${where}: input "${tensor.name}" takes a ${wanted}`);
  }
  const shape = shapeOf(tensor, numbers);
  const count = product(shape) * (isComplex(tensor) ? 2 : 1);
  // By name: the array may be of another frame or realm.
  const isArray = ArrayBuffer.isView(value) && value[Symbol.toStringTag] === type.name;
  if (isArray && value.length === count) return;
  const input = `${where}: input "${tensor.name}"`;
  const wanted = `a ${type.name} of ${count} elements (${tensor.type}[${shape.join(", ")}])`;
  if (isArray) throw new RangeError(`${input} takes ${wanted}, not of ${value.length}`);
  const found = value?.constructor?.name ?? typeof value;
  throw new TypeError(`${input} takes ${wanted}, not a value of type ${found}`);
}

/* The shape of a tensor in a call. */
function shapeOf(tensor, numbers) {
  return tensor.shape.map((size, axis) => {
    const own = tensor.axes?.[axis];
    return own ? numbers[own[0]] * own[1] : size;
  });
}

/*
 * Contiguous runs of elements, as [offset in the module's memory, offset in the caller's array,
 * count]: in memory, a tensor has the layout of the largest sizes.
 */
function* runs(tensor, numbers) {
  const pair = isComplex(tensor) ? 2 : 1;
  const whole = [...tensor.shape, pair];
  const part = [...shapeOf(tensor, numbers), pair];
  let last = whole.length - 1;
  while (last > 0 && whole[last] === part[last]) last--;
  const count = product(part.slice(last));
  const rows = product(part.slice(0, last));
  for (let row = 0; row < rows; row++) {
    let at = 0;
    let rest = row;
    let stride = product(whole.slice(last));
    for (let axis = last - 1; axis >= 0; axis--) {
      at += (rest % part[axis]) * stride;
      rest = Math.floor(rest / part[axis]);
      stride *= whole[axis];
    }
    yield [at, row * count, count];
  }
}

/* A copy of an output. */
function taken(tensor, array, numbers) {
  if (isScalar(tensor)) return array[0];
  if (!tensor.axes) return array.slice();
  const found = new array.constructor(
    product(shapeOf(tensor, numbers)) * (isComplex(tensor) ? 2 : 1),
  );
  for (const [from, to, count] of runs(tensor, numbers))
    found.set(array.subarray(from, from + count), to);
  return found;
}
