// A model on the GPU: its parameters, the training step and forward passes on them.
import { DestroyedError, FormatError, InputError } from './errors.js';
import { parseSafetensors, writeSafetensors } from './format.js';
import { checkSchedule, hyper, knowsOptimizer, rateAt } from './optim.js';
import { checkNeeds, elements, Program, toTyped } from './program.js';

const maxPrograms = 16;  // of a model, one for each size of open inputs
const maxInFlight = 8;  // steps that are submitted and not read back

/** The input shapes that the feeds give, open extents (-1) filled in. Throws InputError. */
function shapesOf(specs, feeds, what) {
  for (const name of Object.keys(feeds)) {
    if (!specs.some((s) => s.name === name)) {
      throw new InputError(`${what} has no input "${name}"; the inputs are ${specs.map((s) => s.name).join(', ')}.`);
    }
  }
  return specs.map((s) => {
    const value = feeds[s.name];
    if (value === undefined || value === null) throw new InputError(`${what}: input "${s.name}" is missing.`);
    const gap = s.shape.indexOf(-1);
    if (gap < 0) return s.shape;
    const rest = -elements(s.shape);
    const count = value.length ?? 1;
    if (rest <= 0 || count % rest !== 0) throw new InputError(`${what}: input "${s.name}" is fed ${count} values, which do not fill [${s.shape.join(', ').replace('-1', 'any')}].`);
    return s.shape.with(gap, count / rest);
  });
}

/** One set of programs with the memory they share: what `replace` exchanges. */
class Core {
  constructor(gpu, bundle, compile) {
    this.gpu = gpu;
    this.bundle = bundle;
    this.compile = compile;  // (role, name, shapes) => bundle with that program; null without wasm
    this.programs = new Map();
    this.states = {};
    this.step = bundle.header.step ?? 0;
    this.seed = BigInt(bundle.header.seed ?? 0);
    this.optimizer = structuredClone(bundle.header.optimizer ?? null);
    this.metadata = bundle.header.metadata ?? {};
  }

  static async create(gpu, bundle, compile) {
    const { header } = bundle;
    checkNeeds(gpu, header.needs);
    if (header.optimizer && !knowsOptimizer(header.optimizer.kind)) {
      throw new FormatError(`The model is trained by ${header.optimizer.kind}, which this version of the package does not know.`);
    }
    const core = new Core(gpu, bundle, compile);
    try {
      await gpu.guarded('the memory of the model', () => {
        for (const s of header.states) core.states[s.name] = gpu.buffer(s.bytes);
      });
      await core.reset();
    } catch (error) {
      core.destroy();
      throw error;
    }
    return core;
  }

  /** Saved values, or those that the init program makes. */
  async reset() {
    const { header, data } = this.bundle;
    for (const s of header.states) {
      this.gpu.write(this.states[s.name], 0, s.data ? data(...s.data) : new Uint8Array(s.bytes));
    }
    this.step = header.step ?? 0;
    if (header.states.some((s) => s.name === 'parameters' && s.data)) return;
    // Its memory is needed once only.
    const init = await this.make('init', '', []);
    await init.submit({}, []);
    init.destroy();
  }

  async program(role, name, shapes) {
    const key = JSON.stringify([role, name, shapes]);
    let made = this.programs.get(key);
    if (!made) {
      made = this.make(role, name, shapes);
      made.catch(() => this.programs.delete(key));
    }
    // The one used last comes last; of many sizes the oldest goes.
    this.programs.delete(key);
    this.programs.set(key, made);
    if (this.programs.size > maxPrograms) {
      const [oldest, program] = this.programs.entries().next().value;
      this.programs.delete(oldest);
      program.then((p) => p.destroy(), () => {});
    }
    return made;
  }

  async make(role, name, shapes) {
    const wanted = JSON.stringify(shapes);
    const find = (header) => header.programs.find((p) => p.role === role && p.name === name
      && JSON.stringify(p.inputs.filter((i) => !i.name.startsWith('$')).map((i) => i.shape)) === wanted);
    let { bundle } = this;
    let spec = find(bundle.header);
    if (!spec && this.compile) {
      bundle = await this.compile(role, name, shapes);
      checkNeeds(this.gpu, bundle.header.needs);
      spec = find(bundle.header);
    }
    if (!spec) {
      const same = bundle.header.programs.filter((p) => p.role === role && p.name === name);
      if (same.length === 0) throw new InputError(role === 'step' ? 'This bundle is for inference: it has no training step.' : `There is no program "${name || role}" in this bundle.`);
      throw new InputError(`The bundle has "${name || role}" for inputs of shapes ${same.map((p) => JSON.stringify(p.inputs.map((i) => i.shape))).join(' and ')}, not ${wanted}.`);
    }
    return Program.create(this.gpu, spec, bundle.header.modules, bundle.data, this.states);
  }

  destroy() {
    for (const p of this.programs.values()) p.then((program) => program.destroy(), () => {});
    this.programs.clear();
    for (const b of Object.values(this.states)) this.gpu.release(b);
    this.states = {};
  }
}

export class Training {
  constructor(core, replaceCore) {
    this.core = core;
    this.replaceCore = replaceCore;  // options => Core; null for a bundle
    this.turn = Promise.resolve();
    this.inFlight = [];
    this.gone = false;
  }

  static async create(gpu, bundle, compile = null, replaceCore = null) {
    return new Training(await Core.create(gpu, bundle, compile), replaceCore);
  }
  static makeCore(gpu, bundle, compile) {
    return Core.create(gpu, bundle, compile);
  }

  /** Calls happen one after the other in the order they were made, whatever each waits for. */
  ordered(work) {
    const run = this.turn.then(() => {
      if (this.gone) throw new DestroyedError('The training is destroyed.');
      return work(this.core);
    });
    this.turn = run.then(() => {}, () => {});
    return run;
  }

  /**
   * Submits without waiting for what ran before, up to a few runs ahead. `prepare` gives its promise
   * inside an object, so that nothing but the caller waits for the readback.
   */
  async launch(prepare) {
    const { result } = await this.ordered(async (core) => {
      while (this.inFlight.length >= maxInFlight) await this.inFlight[0].catch(() => {});
      const { launched } = await prepare(core);
      this.inFlight.push(launched);
      const remove = () => { this.inFlight.splice(this.inFlight.indexOf(launched), 1); };
      launched.then(remove, remove);
      return { result: launched };
    });
    return result;
  }

  info() {
    const { header } = this.core.bundle;
    const brief = ({ name, shape, dtype }) => ({ name, shape, dtype });
    return {
      inputs: header.inputs.map(brief),
      forwards: Object.fromEntries(header.forwards.map((f) => [f.name, f.inputs.map(brief)])),
      params: header.params.map(({ name, shape }) => ({ name, shape })),
      trainable: header.inputs.length > 0,
      metadata: this.core.metadata,
      step: this.core.step,
    };
  }

  async step(feeds, options = {}) {
    let number = 0, lr = 0;
    const outputs = await this.launch(async (core) => {
      const { header } = core.bundle;
      const program = await core.program('step', '', shapesOf(header.inputs, feeds, 'The training step'));
      const next = core.step + 1;
      const inputs = { ...feeds, $hyper: hyper(core.optimizer, next) };
      if (program.spec.inputs.some((i) => i.name === '$key')) {
        inputs.$key = Uint32Array.of(Number(core.seed >> 32n), Number(core.seed & 0xffffffffn), next);
      }
      const launched = program.submit(inputs, ['loss', ...this.chosen(program, options.captures)]);
      core.step = number = next;
      lr = rateAt(core.optimizer.lr, next);
      return { launched };
    });
    const { loss, ...captures } = outputs;
    return { loss: loss[0], step: number, lr, captures };
  }

  chosen(program, captures = []) {
    if (captures === true) return program.spec.outputs.slice(1).map((o) => o.name);
    return captures;
  }

  async forward(name, feeds, options = {}) {
    let shapes = {};
    const outputs = await this.launch(async (core) => {
      const spec = this.forwardSpec(core, name);
      const program = await core.program('forward', name, shapesOf(spec.inputs, feeds, `"${name}"`));
      shapes = Object.fromEntries(program.spec.outputs.map((o) => [o.name, o.shape]));
      return { launched: program.submit(feeds, ['value', ...this.chosen(program, options.captures)]) };
    });
    const { value, ...captures } = outputs;
    return { value, shape: shapes.value, captures, shapes };
  }

  forwardSpec(core, name) {
    const found = core.bundle.header.forwards.find((f) => f.name === name);
    if (!found) throw new InputError(`There is no forward "${name}"; there are ${core.bundle.header.forwards.map((f) => f.name).join(', ') || 'none'}.`);
    return found;
  }
  attach(name) {
    this.forwardSpec(this.core, name);
  }

  async readState(core, name) {
    const state = core.bundle.header.states.find((s) => s.name === name);
    const encoder = core.gpu.device.createCommandEncoder();
    const read = core.gpu.readback(encoder, [{ buffer: core.states[name], offset: 0, bytes: state.bytes }]);
    core.gpu.submit(encoder);
    return new Float32Array((await read())[0]);
  }

  params() {
    return this.ordered(async (core) => {
      const arena = await this.readState(core, 'parameters');
      return core.bundle.header.params.map((p) => ({ name: p.name, shape: p.shape, values: arena.slice(p.offset, p.offset + elements(p.shape)) }));
    });
  }

  /** Replaces parameters by name; all are checked before any is written. */
  setParams(values) {
    return this.ordered((core) => {
      const writes = Object.entries(values).map(([name, array]) => {
        const p = core.bundle.header.params.find((q) => q.name === name);
        if (!p) throw new InputError(`The model has no parameter "${name}".`);
        return [4 * p.offset, toTyped({ ...p, dtype: 'f32' }, array)];
      });
      for (const [offset, array] of writes) core.gpu.write(core.states.parameters, offset, array);
    });
  }

  setLr(schedule) {
    return this.ordered((core) => {
      if (!core.optimizer) throw new InputError('This bundle is for inference: it has no learning rate.');
      checkSchedule(schedule);
      core.optimizer.lr = schedule;
    });
  }

  reset() {
    return this.ordered((core) => core.reset());
  }

  save(metadata = {}) {
    return this.ordered(async (core) => {
      const { header } = core.bundle;
      const tensors = [];
      for (const s of header.states) {
        const arena = await this.readState(core, s.name);
        const prefix = s.name === 'parameters' ? '' : `${s.name}.`;
        for (const p of header.params) tensors.push({ name: prefix + p.name, shape: p.shape, values: arena.subarray(p.offset, p.offset + elements(p.shape)) });
      }
      return writeSafetensors(tensors, { ...core.metadata, ...metadata, format: 'tensorgrad', step: String(core.step),
        seed: String(core.seed), ...(core.optimizer && { optimizer: JSON.stringify(core.optimizer) }) });
    });
  }

  load(bytes) {
    return this.ordered((core) => {
      const { header } = core.bundle;
      const { metadata, tensors } = parseSafetensors(bytes);
      const prefixOf = (s) => (s.name === 'parameters' ? '' : `${s.name}.`);
      const resumes = [...tensors.keys()].some((n) => n.startsWith('optimizer.'));
      const known = new Set(header.states.flatMap((s) => header.params.map((p) => prefixOf(s) + p.name)));
      for (const name of tensors.keys()) {
        // A file of a whole training also serves a bundle that only runs forward.
        if (!known.has(name) && !(name.startsWith('optimizer.') && !header.inputs.length)) throw new FormatError(`The checkpoint holds "${name}", which this model does not have.`);
      }
      const arenas = header.states.map((s) => {
        const arena = new Float32Array(s.bytes / 4);
        if (s.name !== 'parameters' && !resumes) return arena;
        for (const p of header.params) {
          const t = tensors.get(prefixOf(s) + p.name);
          if (!t) throw new FormatError(`The checkpoint lacks "${prefixOf(s)}${p.name}".`);
          if (String(t.shape) !== String(p.shape)) throw new FormatError(`The checkpoint's "${p.name}" has shape [${t.shape}], the model's [${p.shape}].`);
          arena.set(t.values, p.offset);
        }
        return arena;
      });
      const step = resumes ? Number(metadata.step) : 0;
      if (!Number.isSafeInteger(step) || step < 0 || (resumes && !/^\d+$/.test(metadata.seed ?? ''))) throw new FormatError('The checkpoint has no step and seed in its metadata.');
      header.states.forEach((s, i) => core.gpu.write(core.states[s.name], 0, arenas[i]));
      core.step = step;
      if (resumes) core.seed = BigInt(metadata.seed);
      core.metadata = metadata;
    });
  }

  /** Another model in the place of this one; handles of its forwards stay good. */
  replace(options) {
    return this.ordered(async (core) => {
      if (!this.replaceCore) throw new InputError('A bundle holds one model; only a WebAssembly module can make another.');
      this.core = await this.replaceCore(options);
      core.destroy();
      return this.info();
    });
  }

  async destroy() {
    if (this.gone) return;
    this.gone = true;
    await Promise.allSettled(this.inFlight);
    await this.turn;
    this.core.destroy();
  }
}
