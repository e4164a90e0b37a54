// The worker: runs everything that waits for the GPU or for the compiler.
import { packError } from './errors.js';
import { Host } from './host.js';
import { transferables } from './transfer.js';

const host = new Host();

globalThis.onmessage = async ({ data }) => {
  if (data.lock) {
    // The page waits for this lock; it gets it when this worker is no more.
    globalThis.navigator.locks?.request(data.lock, () => new Promise(() => {}));
    return;
  }
  const { id, handle, method, args } = data;
  try {
    const result = await host.call(handle, method, args);
    globalThis.postMessage({ id, result }, [...transferables(result)]);
  } catch (error) {
    globalThis.postMessage({ id, error: packError(error) });
  }
};
