/* A thread of NAME: an instance of its module, with the same memory and a stack of its own. */

const isNode = typeof process === "object" && Boolean(process.versions?.node);
const port = isNode
  ? (await import(/* webpackIgnore: true */ /* @vite-ignore */ "node:worker_threads")).parentPort
  : self;

function work({ module, memory, range }) {
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  exports.stack(exports.stack_of(range));
  port.postMessage("ready");
  exports.work(range); // Until the worker is terminated.
}

if (isNode) port.once("message", work);
else port.onmessage = (event) => work(event.data);
