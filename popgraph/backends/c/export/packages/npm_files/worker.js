/* A thread of NAME: an instance of its module, with the same memory and a stack of its own. */

function work(port, { module, memory, range }) {
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  exports.stack(exports.stack_of(range));
  port.postMessage("ready");
  exports.work(range); // Until the worker is terminated.
}

if (typeof process === "object" && process.versions?.node) {
  import(/* webpackIgnore: true */ /* @vite-ignore */ "node:worker_threads").then(
    ({ parentPort }) => parentPort.once("message", (message) => work(parentPort, message)),
  );
} else {
  self.onmessage = (event) => work(self, event.data);
}
