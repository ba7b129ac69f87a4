
/* The workers of a model with threads, when all of them are ready. */
async function startedWorkers(module, memory, threads) {
  const { Worker: Thread } = isNode
    ? await import(/* webpackIgnore: true */ /* @vite-ignore */ "node:worker_threads")
    : {};
  const ready = [];
  for (let range = 1; range < threads; range++) {
    const worker = isNode
      ? new Thread(new URL("./NAME_worker.js", import.meta.url))
      : new Worker(new URL("./NAME_worker.js", import.meta.url), { type: "module" });
    worker.postMessage({ module, memory, range });
    ready.push(new Promise((resolve, reject) => {
      const succeed = () => resolve(worker);
      const fail = () => reject(new Error(`${MODEL.name}: a thread could not be started`));
      if (isNode) worker.once("message", succeed).once("error", fail);
      else [worker.onmessage, worker.onerror] = [succeed, fail];
    }));
  }
  const workers = await Promise.all(ready);
  if (isNode) workers.forEach((worker) => worker.unref()); // Node may end without them.
  return workers;
}
