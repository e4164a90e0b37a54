// One compiled program on a device: buffers, bind groups, and a run as a single submission.
import { InputError, UnsupportedError } from './errors.js';

// Kernels of a page hold an f16 as the f32 that it is: not every browser has arrays of f16.
const arrays = { f32: Float32Array, f16: Float32Array, i32: Int32Array, u32: Uint32Array, bool: Uint8Array };
export const elements = (shape) => shape.reduce((a, b) => a * b, 1);

/** Throws UnsupportedError, naming every limit and feature that is missing. */
export function checkNeeds(gpu, needs = {}) {
  const lacking = [];
  for (const [key, value] of Object.entries(needs.limits ?? {})) {
    const has = gpu.limits[key] ?? 0;
    const alignment = key.startsWith('min');
    if (alignment ? has > value : has < value) lacking.push(`${key} ${value} (it has ${has})`);
  }
  for (const feature of needs.features ?? []) {
    if (!gpu.features.includes(feature)) lacking.push(`the feature ${feature}`);
  }
  if (needs.subgroups) {
    const { subgroupMinSize: min, subgroupMaxSize: max } = gpu.adapter;
    if (min !== needs.subgroups[0] || max !== needs.subgroups[1]) {
      lacking.push(`subgroups of ${needs.subgroups.join(' to ')} (it has ${min} to ${max})`);
    }
  }
  if (lacking.length > 0) {
    throw new UnsupportedError(`This graphics adapter cannot run the model: it needs ${lacking.join(', ')}.`);
  }
}

/** A typed array of `spec.dtype` from what a caller gave. */
export function toTyped(spec, value) {
  const Type = arrays[spec.dtype];
  const count = elements(spec.shape);
  let typed = value;
  if (typeof value === 'number' || typeof value === 'boolean') typed = Type.of(value);
  else if (Array.isArray(value)) typed = Type.from(value);
  if (!ArrayBuffer.isView(typed)) throw new InputError(`Input "${spec.name}" is not an array.`);
  if (!(typed instanceof Type) && !(spec.dtype === 'bool' && typed instanceof Uint8ClampedArray)) {
    throw new InputError(`Input "${spec.name}" is fed a ${typed.constructor.name}, but it takes a ${Type.name}.`);
  }
  if (typed.length !== count) {
    throw new InputError(`Input "${spec.name}" is fed ${typed.length} values, but [${spec.shape}] takes ${count}.`);
  }
  return typed;
}

/** A copy of f32 numbers rounded to f16, to nearest and even. */
export function toHalves(values) {
  const out = Float32Array.from(values);
  const bits = new Uint32Array(out.buffer);
  for (let i = 0; i < bits.length; i++) {
    const size = bits[i] & 0x7fffffff;
    if (size === 0 || size > 0x7f800000) continue;
    if (size < 0x38800000) {
      // Doubles of this size have units of 2^-24, those of small f16.
      const large = 1.5 * 2 ** 28;
      out[i] = out[i] + large - large;
    } else {
      const even = (size + 0xfff + ((size >>> 13) & 1)) & 0xffffe000;
      bits[i] = (bits[i] & 0x80000000) | (even >= 0x47800000 ? 0x7f800000 : even);
    }
  }
  return out;
}

/** What the device holds for the values of `dtype`: truth values are words there. */
function toDevice(dtype, values) {
  if (dtype === 'bool') return Uint32Array.from(values, (v) => (v ? 1 : 0));
  return dtype === 'f16' ? toHalves(values) : values;
}

export class Program {
  /**
   * Compiles the kernels and makes the buffers. `spec` is a program of a bundle, `modules` the
   * bundle's modules, `data(begin, end)` its bytes, `states` the buffers of its states by name.
   */
  static async create(gpu, spec, modules, data, states) {
    const used = [...new Set(spec.passes.map((p) => p.module))];
    return gpu.guarded(`the program "${spec.name}"`, async () => {
      const pipelines = new Map();
      await Promise.all(used.map(async (m) => pipelines.set(m, await gpu.pipeline(modules[m]))));
      return new Program(gpu, spec, modules, data, states, pipelines);
    });
  }

  constructor(gpu, spec, modules, data, states, pipelines) {
    this.gpu = gpu;
    this.spec = spec;
    this.owned = [];
    this.buffers = spec.buffers.map((b) => {
      if (b.state !== undefined) return states[b.state];
      const buffer = gpu.buffer(b.bytes, { uniform: b.uniform });
      this.owned.push(buffer);
      if (b.data) gpu.write(buffer, 0, data(...b.data));
      return buffer;
    });
    this.passes = spec.passes.map((p) => ({
      pipeline: pipelines.get(p.module),
      groups: p.groups,
      bindings: gpu.device.createBindGroup({
        layout: gpu.layout(modules[p.module].types),
        entries: p.bindings.map(([buffer, offset, size], binding) => ({ binding, resource: { buffer: this.buffers[buffer], offset, size } })),
      }),
    }));
  }

  place(entry) {
    return { buffer: this.buffers[entry.buffer], offset: entry.offset ?? 0 };
  }

  /**
   * Uploads `inputs` (typed arrays by name), runs, and reads back the outputs in `wanted`. Returns
   * after the submission; the promise gives the outputs by name, as typed arrays.
   */
  submit(inputs, wanted) {
    const { gpu, spec } = this;
    gpu.check();
    // All is checked before anything is written: a call that throws changes nothing.
    const feeds = spec.inputs.map((s) => {
      if (inputs[s.name] === undefined) throw new InputError(`Input "${s.name}" is missing; the inputs are ${spec.inputs.map((i) => i.name).join(', ')}.`);
      return toTyped(s, inputs[s.name]);
    });
    const outputs = wanted.map((name) => {
      const found = spec.outputs.find((o) => o.name === name);
      if (!found) throw new InputError(`There is no output "${name}"; there are ${spec.outputs.map((o) => o.name).join(', ')}.`);
      return found;
    });
    spec.inputs.forEach((s, i) => {
      const { buffer, offset } = this.place(s);
      gpu.write(buffer, offset, toDevice(s.dtype, feeds[i]));
    });
    const encoder = gpu.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (const p of this.passes) {
      pass.setPipeline(p.pipeline);
      pass.setBindGroup(0, p.bindings);
      pass.dispatchWorkgroups(...p.groups);
    }
    pass.end();
    gpu.counts.dispatches += this.passes.length;
    const read = gpu.readback(encoder, outputs.map((o) => ({ ...this.place(o), bytes: 4 * elements(o.shape) })));
    gpu.submit(encoder);
    return read().then((parts) => Object.fromEntries(outputs.map((o, i) => {
      const Type = arrays[o.dtype];
      return [o.name, o.dtype === 'bool' ? Uint8Array.from(new Uint32Array(parts[i])) : new Type(parts[i])];
    })));
  }

  destroy() {
    for (const b of this.owned) this.gpu.release(b);
    this.owned = [];
  }
}
