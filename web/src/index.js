// What a page uses. Everything is asynchronous, and calls on one object happen in order.
import { DestroyedError, DeviceLostError, InputError, unpackError } from './errors.js';
import { transferables } from './transfer.js';

export * from './errors.js';
export { checkWebGPU } from './check.js';

/** Calls across a worker's messages. */
class WorkerLink {
  constructor(worker) {
    this.worker = worker;
    this.waiting = new Map();
    this.next = 1;
    this.failure = null;
    worker.onmessage = ({ data: { id, result, error } }) => {
      const call = this.waiting.get(id);
      this.waiting.delete(id);
      if (error) call?.reject(unpackError(error));
      else call?.resolve(result);
    };
    worker.onerror = (event) => {
      event.preventDefault?.();
      this.fail(new DeviceLostError(`The worker failed: ${event.message ?? 'no reason is given'}. Open the runtime again to go on.`));
    };
    const { locks } = globalThis.navigator ?? {};
    if (locks) {
      const lock = `tensorgrad-${crypto.randomUUID()}`;
      worker.postMessage({ lock });
      // Asked for once the worker is known to hold it: see `started`.
      this.watch = () => locks.request(lock, () => this.fail(new DeviceLostError('The worker ended. Open the runtime again to go on.')));
    }
  }

  started() {
    this.watch?.();
    this.watch = null;
  }

  fail(error) {
    this.failure ??= error;
    for (const { reject } of this.waiting.values()) reject(this.failure);
    this.waiting.clear();
  }

  call(handle, method, args, keep = false) {
    if (this.failure) return Promise.reject(this.failure);
    return new Promise((resolve, reject) => {
      const id = this.next++;
      this.waiting.set(id, { resolve, reject });
      try {
        this.worker.postMessage({ id, handle, method, args }, keep ? [] : [...transferables(args)]);
      } catch (error) {
        this.waiting.delete(id);
        reject(new InputError(`The arguments cannot be sent: ${error.message}`));
      }
    });
  }

  close() {
    this.fail(new DestroyedError('The runtime is destroyed.'));
    this.worker.terminate();
  }
}

/** The same calls without a worker. */
class DirectLink {
  constructor(host) {
    this.host = host;
  }
  call(handle, method, args) {
    return this.host.call(handle, method, args);
  }
  started() {}
  close() {}
}

/** A forward pass on a training's parameters. */
class Forward {
  constructor(training, name) {
    this.training = training;
    this.name = name;
  }
  run(feeds, options = {}) {
    return this.training.link.call(this.training.handle, 'forward', [this.name, feeds, options], options.keep);
  }
}

/** A model with its parameters on the GPU. */
class Training {
  constructor(link, { handle, info }) {
    this.link = link;
    this.handle = handle;
    this.info = info;
  }
  call(method, ...args) {
    return this.link.call(this.handle, method, args);
  }
  step(feeds, options = {}) {
    return this.link.call(this.handle, 'step', [feeds, options], options.keep);
  }
  async run(batches, { onStep, signal, ahead = 2, ...options } = {}) {
    const pending = [];
    let last = null;
    const settle = async () => {
      last = await pending.shift();
      await onStep?.(last);
    };
    try {
      for await (const feeds of batches) {
        if (signal?.aborted) break;
        pending.push(this.step(feeds, options));
        // A rejection is seen where it is awaited, not as an unhandled one.
        pending.at(-1).catch(() => {});
        if (pending.length > ahead) await settle();
      }
      while (pending.length > 0) await settle();
    } finally {
      await Promise.allSettled(pending);
    }
    return last;
  }
  async attach(name) {
    await this.call('attach', name);
    return new Forward(this, name);
  }
  params() { return this.call('params'); }
  setParams(values) { return this.link.call(this.handle, 'setParams', [values], true); }
  setLr(schedule) { return this.call('setLr', schedule); }
  reset() { return this.call('reset'); }
  save(metadata) { return this.call('save', metadata); }
  load(bytes) { return this.link.call(this.handle, 'load', [bytes], true); }
  async replace(options) {
    this.info = await this.call('replace', options);
    return this.info;
  }
  destroy() { return this.call('destroy'); }
}

/** A loaded C++ module. */
class Module {
  constructor(link, { handle, models }) {
    this.link = link;
    this.handle = handle;
    this.models = models;
  }
  async training(model, options = {}) {
    return new Training(this.link, await this.link.call(0, 'training', [this.handle, model, options], true));
  }
  destroy() { return this.link.call(this.handle, 'destroy', []); }
}

class Runtime {
  constructor(link, about) {
    this.link = link;
    Object.assign(this, about);
  }
  async loadModule(source) {
    return new Module(this.link, await this.link.call(0, 'loadModule', [address(source)], true));
  }
  async loadBundle(source) {
    return new Training(this.link, await this.link.call(0, 'loadBundle', [address(source)], true));
  }
  counts() { return this.link.call(0, 'counts', []); }
  /** For tests of what a page does then. */
  loseDevice() { return this.link.call(0, 'lose', []); }
  async destroy() {
    await this.link.call(0, 'destroy', []).catch(() => {});
    this.link.close();
  }
}

// The worker has another base address than the page.
function address(source) {
  if (source instanceof URL) return source.href;
  if (typeof source === 'string' && globalThis.location) return new URL(source, globalThis.location.href).href;
  return source;
}

/** Opens the GPU, in a worker where there are workers. Throws WebGPUUnavailableError. */
export async function init(options = {}) {
  const { worker = typeof Worker !== 'undefined' && !options.gpu, ...rest } = options;
  let link;
  if (worker) {
    link = new WorkerLink(worker === true ? new Worker(new URL('./worker.js', import.meta.url), { type: 'module' }) : worker);
  } else {
    const { Host } = await import('./host.js');
    link = new DirectLink(new Host());
  }
  try {
    const about = await link.call(0, 'open', [rest]);
    link.started();
    return new Runtime(link, about);
  } catch (error) {
    link.close();
    throw error;
  }
}

/**
 * A function that keeps one call of `f` in flight: what is asked for meanwhile waits, and of that
 * only the latest is run; the others give undefined. For live previews.
 */
export function singleFlight(f) {
  let running = false, next = null;
  const start = async (args) => {
    running = true;
    try {
      return await f(...args);
    } finally {
      running = false;
      if (next) {
        const { args: later, resolve } = next;
        next = null;
        resolve(start(later));
      }
    }
  };
  return (...args) => {
    if (!running) return start(args);
    next?.resolve(undefined);
    return new Promise((resolve) => { next = { args, resolve }; });
  };
}
