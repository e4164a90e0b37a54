// What the page's objects stand for, in the worker (or in the page itself, without one).
import { InputError } from './errors.js';
import { parseBundle } from './format.js';
import { Gpu } from './gpu.js';
import { Module } from './module.js';
import { Training } from './training.js';

/** Objects by number, and calls on them. */
export class Host {
  constructor() {
    this.objects = new Map();
    this.next = 1;
  }

  keep(object) {
    this.objects.set(this.next, object);
    return this.next++;
  }

  /** Calls start in the order they arrive. */
  async call(handle, method, args) {
    if (handle === 0) return this[`do_${method}`](...args);
    const object = this.objects.get(handle);
    if (!object) throw new InputError('The object is destroyed.');
    if (method === 'destroy') this.objects.delete(handle);
    return object[method](...args);
  }

  async do_open(options) {
    this.gpu = await Gpu.open(options);
    const { description, features, limits, adapter } = this.gpu;
    return { description, features, limits, adapter };
  }
  do_counts() {
    let heap = 0;
    for (const { module } of this.objects.values()) heap += module?.exports.memory.buffer.byteLength ?? 0;
    return { ...this.gpu.counts, objects: this.objects.size, heap };
  }
  do_lose() {
    this.gpu.device.destroy();
  }
  do_destroy() {
    this.gpu?.destroy();
    this.objects.clear();
  }

  async do_loadModule(source) {
    const module = await Module.load(source);
    return { handle: this.keep({ module, destroy() {} }), models: module.models() };
  }

  async do_training(moduleHandle, model, options) {
    this.gpu.check();
    const entry = this.objects.get(moduleHandle);
    if (!entry) throw new InputError('The module is destroyed.');
    const target = { limits: this.gpu.limits, features: this.gpu.features, adapter: this.gpu.adapter };
    let opened;
    const make = async (values) => {
      const fresh = entry.module.open(model, values ?? {}, target);
      try {
        const core = await Training.makeCore(this.gpu, fresh.bundle, fresh.compile);
        opened?.close();
        opened = fresh;
        return core;
      } catch (error) {
        fresh.close();
        throw error;
      }
    };
    const training = new Training(await make(options), make);
    const destroy = training.destroy.bind(training);
    training.destroy = async () => {
      await destroy();
      opened?.close();
      opened = null;
    };
    return { handle: this.keep(training), info: training.info() };
  }

  async do_loadBundle(source) {
    this.gpu.check();
    let bytes = source, what = 'The bundle';
    if (typeof source === 'string') {
      what = source;
      const response = await fetch(source);
      if (!response.ok) throw new InputError(`${source} cannot be loaded: ${response.status} ${response.statusText}.`);
      bytes = await response.arrayBuffer();
    }
    const training = await Training.create(this.gpu, parseBundle(bytes, what));
    return { handle: this.keep(training), info: training.info() };
  }
}
