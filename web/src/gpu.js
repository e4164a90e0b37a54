// A device: pipelines by content, staging buffers by size, and what goes wrong.
import { checkWebGPU } from './check.js';
import { DestroyedError, DeviceLostError, GPUProgramError, OutOfMemoryError, WebGPUUnavailableError } from './errors.js';

const MAP_READ = 1, COPY_SRC = 4, COPY_DST = 8, UNIFORM = 0x40, STORAGE = 0x80, COMPUTE = 4, READ = 1;
/** Features that generated programs may use. */
const usefulFeatures = ['shader-f16', 'subgroups', 'timestamp-query'];
const maxPipelines = 1024;  // that are kept for models to come
const round = (n, to) => Math.ceil(n / to) * to;

export class Gpu {
  /** Throws WebGPUUnavailableError with a message for people. */
  static async open(options = {}) {
    const found = await checkWebGPU(options);
    if (!found.ok) throw new WebGPUUnavailableError(found.message);
    const { adapter } = found;
    const requiredLimits = {};
    for (const key in adapter.limits) {
      // Subgroup sizes are told among the limits by some browsers, but cannot be asked for.
      if (typeof adapter.limits[key] === 'number' && !/subgroup/i.test(key)) requiredLimits[key] = adapter.limits[key];
    }
    const requiredFeatures = usefulFeatures.filter((f) => adapter.features.has(f));
    let device;
    try {
      device = await adapter.requestDevice({ requiredLimits, requiredFeatures });
    } catch (error) {
      throw new WebGPUUnavailableError(`The graphics adapter gives no device: ${error.message}`);
    }
    return new Gpu(device, found);
  }

  constructor(device, { adapter, message, software }) {
    this.device = device;
    this.description = message;
    this.features = [...device.features];
    this.limits = {};
    for (const key in device.limits) if (typeof device.limits[key] === 'number') this.limits[key] = device.limits[key];
    const info = adapter.info ?? {};
    this.adapter = { vendor: info.vendor ?? '', architecture: info.architecture ?? '', description: info.description ?? '', software,
      subgroupMinSize: info.subgroupMinSize ?? 0, subgroupMaxSize: info.subgroupMaxSize ?? 0 };
    this.failure = null;  // what every later call throws
    this.pipelines = new Map();
    this.layouts = new Map();
    this.staging = new Map();
    this.counts = { submissions: 0, dispatches: 0, pipelines: 0, buffers: 0 };
    this.lost = device.lost.then((info) => {
      this.failure ??= info.reason === 'destroyed' && this.closed
        ? new DestroyedError('The runtime is destroyed.')
        : new DeviceLostError(`The GPU was lost: ${info.message || info.reason || 'no reason is given'}. Load the model again to go on.`);
      return this.failure;
    });
    device.addEventListener?.('uncapturederror', (event) => {
      event.preventDefault?.();
      this.failure ??= this.typed(event.error, 'a command');
    });
  }

  typed(error, what) {
    const text = `The GPU refuses ${what}: ${error.message.split('\n')[0]}`;
    const memory = globalThis.GPUOutOfMemoryError && error instanceof globalThis.GPUOutOfMemoryError;
    return memory || error.constructor?.name === 'GPUOutOfMemoryError' ? new OutOfMemoryError(text) : new GPUProgramError(text);
  }

  check() {
    if (this.failure) throw this.failure;
  }

  /** Runs `make` and throws what the GPU says of it as a typed error. */
  async guarded(what, make) {
    this.check();
    const { device } = this;
    device.pushErrorScope('out-of-memory');
    device.pushErrorScope('validation');
    let made, thrown;
    try {
      made = await make();
    } catch (error) {
      thrown = error;
    }
    const [validation, memory] = await Promise.all([device.popErrorScope(), device.popErrorScope()]).catch(async () => {
      throw await this.lost;
    });
    const error = validation ?? memory;
    if (error) throw this.typed(error, what);
    this.check();
    if (thrown) throw thrown.constructor?.name === 'GPUPipelineError' ? this.typed(thrown, what) : thrown;
    return made;
  }

  buffer(bytes, { uniform = false } = {}) {
    this.counts.buffers++;
    const size = Math.max(4, round(bytes, 4));
    return this.device.createBuffer({ size, usage: COPY_SRC | COPY_DST | (uniform ? UNIFORM : STORAGE) });
  }
  release(buffer) {
    if (!buffer) return;
    this.counts.buffers--;
    buffer.destroy();
  }

  /** Writes any typed array; sizes that are no multiple of 4 are filled up. */
  write(buffer, offset, data) {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (bytes.length === 0) return;
    if (bytes.length % 4 === 0) {
      this.device.queue.writeBuffer(buffer, offset, bytes);
    } else {
      const padded = new Uint8Array(round(bytes.length, 4));
      padded.set(bytes);
      this.device.queue.writeBuffer(buffer, offset, padded);
    }
  }

  layout(types) {
    const key = types.join();
    let layout = this.layouts.get(key);
    if (!layout) {
      layout = this.device.createBindGroupLayout({ entries: types.map((type, binding) => ({ binding, visibility: COMPUTE, buffer: { type } })) });
      this.layouts.set(key, layout);
    }
    return layout;
  }

  /** The pipeline of a module {code, entry, types}; equal modules share one. */
  pipeline({ code, entry, types }) {
    const key = `${entry}|${types}|${code}`;
    let made = this.pipelines.get(key);
    if (!made) {
      const layout = this.layout(types);
      this.counts.pipelines++;
      made = this.device.createComputePipelineAsync({
        layout: this.device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module: this.device.createShaderModule({ code }), entryPoint: entry },
      });
      // A failure is not kept: a later load may ask for the same text and deserves the message too.
      made.catch(() => this.pipelines.delete(key));
      this.pipelines.set(key, made);
      if (this.pipelines.size > maxPipelines) this.pipelines.delete(this.pipelines.keys().next().value);
    }
    return made;
  }

  /**
   * Puts copies of `parts` ([{buffer, offset, bytes}]) into `encoder`. Returns a function to call
   * after the submission, whose promise gives the bytes of each part.
   */
  readback(encoder, parts) {
    let total = 0;
    const places = parts.map((p) => {
      const at = total;
      total += round(Math.max(p.bytes, 4), 8);
      return at;
    });
    if (total === 0) return async () => [];
    // Sizes are rounded up to powers of two so that a few buffers serve all.
    const size = 2 ** Math.ceil(Math.log2(Math.max(total, 256)));
    const free = this.staging.get(size) ?? [];
    this.staging.set(size, free);
    let staging = free.pop();
    if (!staging) {
      this.counts.buffers++;
      staging = this.device.createBuffer({ size, usage: MAP_READ | COPY_DST });
    }
    parts.forEach((p, i) => {
      if (p.bytes > 0) encoder.copyBufferToBuffer(p.buffer, p.offset, staging, places[i], round(p.bytes, 4));
    });
    return async () => {
      try {
        await staging.mapAsync(READ, 0, total);
      } catch (error) {
        this.release(staging);
        this.check();
        const lost = await Promise.race([this.lost, new Promise((done) => { setTimeout(done, 50); })]);
        throw lost ?? new GPUProgramError(`A result cannot be read: ${error.message}`);
      }
      const all = staging.getMappedRange(0, total);
      const out = parts.map((p, i) => all.slice(places[i], places[i] + p.bytes));
      staging.unmap();
      if (free.length < 4) free.push(staging);
      else this.release(staging);
      this.check();
      return out;
    };
  }

  submit(encoder) {
    this.counts.submissions++;
    this.device.queue.submit([encoder.finish()]);
  }

  destroy() {
    this.closed = true;
    this.failure ??= new DestroyedError('The runtime is destroyed.');
    for (const list of this.staging.values()) for (const b of list) this.release(b);
    this.staging.clear();
    this.pipelines.clear();
    this.device.destroy();
  }
}
