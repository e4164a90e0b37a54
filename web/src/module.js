// A C++ module: WebAssembly that traces and compiles models, and nothing else.
import { ModuleError } from './errors.js';
import { parseBundle } from './format.js';

const encoder = new TextEncoder(), decoder = new TextDecoder();

// The few system calls that a C library without files makes.
function systemCalls(memory, print) {
  const view = () => new DataView(memory().buffer);
  let line = '';
  return {
    fd_write(fd, list, count, written) {
      let total = 0;
      for (let i = 0; i < count; i++) {
        const at = view().getUint32(list + 8 * i, true), size = view().getUint32(list + 8 * i + 4, true);
        line += decoder.decode(new Uint8Array(memory().buffer, at, size).slice());
        total += size;
      }
      view().setUint32(written, total, true);
      const lines = line.split('\n');
      line = lines.pop();
      lines.forEach((l) => print(l));
      return 0;
    },
    clock_time_get(id, precision, at) {
      view().setBigUint64(at, BigInt(Math.round((id === 0 ? Date.now() : performance.now()) * 1e6)), true);
      return 0;
    },
    environ_sizes_get(count, size) {
      view().setUint32(count, 0, true);
      view().setUint32(size, 0, true);
      return 0;
    },
    environ_get: () => 0,
    fd_close: () => 0,
    proc_exit(code) { throw new ModuleError(`The module ended itself with code ${code}.`, 'exit'); },
  };
}

export class Module {
  /** `source`: URL, Response, bytes, or a compiled WebAssembly.Module. */
  static async load(source, print = (line) => console.warn(line)) {
    let compiled = source;
    if (typeof source === 'string' || source instanceof URL) {
      const response = await fetch(source);
      if (!response.ok) throw new ModuleError(`The module ${source} cannot be loaded: ${response.status} ${response.statusText}.`);
      compiled = await WebAssembly.compile(await response.arrayBuffer());
    } else if (!(source instanceof WebAssembly.Module)) {
      compiled = await WebAssembly.compile(source);
    }
    let memory;
    const calls = systemCalls(() => memory, print);
    const imports = {};
    for (const { module, name } of WebAssembly.Module.imports(compiled)) {
      // 52 is "not supported": files, sockets and the like.
      (imports[module] ??= {})[name] = calls[name] ?? (() => 52);
    }
    const instance = await WebAssembly.instantiate(compiled, imports);
    ({ memory } = instance.exports);
    instance.exports._initialize?.();
    return new Module(instance.exports);
  }

  constructor(exports) {
    this.exports = exports;
  }

  /** Sends a JSON request; the answer is bytes. Throws ModuleError for a C++ exception. */
  call(request) {
    const { memory, tensorgrad_alloc: alloc, tensorgrad_free: free, tensorgrad_call: call } = this.exports;
    const text = encoder.encode(JSON.stringify(request));
    const at = alloc(text.length) >>> 0;
    new Uint8Array(memory.buffer, at, text.length).set(text);
    let answer;
    try {
      answer = call(at, text.length) >>> 0;
    } catch (error) {
      throw new ModuleError(`The module fails: ${error.message}`, 'trap');
    } finally {
      free(at);
    }
    // Views are made here, after the call: it may have grown the memory.
    const [failed, begin, size] = new Uint32Array(memory.buffer, answer, 3);
    const bytes = new Uint8Array(memory.buffer, begin, size).slice();
    call(0, 0);  // gives the answer's memory back
    if (failed) {
      const { type, message } = JSON.parse(decoder.decode(bytes));
      throw new ModuleError(message, type);
    }
    return bytes;
  }

  json(request) {
    return JSON.parse(decoder.decode(this.call(request)));
  }

  /** Names of the models that the module registers. */
  models() {
    return this.json({ call: 'models' });
  }

  /** Traces a model: {handle, bundle, compile, close}. */
  open(model, options, target) {
    const { handle } = this.json({ call: 'open', model, options, target });
    const parse = (request) => parseBundle(this.call({ ...request, handle }), 'The module\'s answer');
    return {
      bundle: parse({ call: 'bundle' }),
      compile: (role, name, shapes) => parse({ call: 'program', role, name, shapes }),
      close: () => this.call({ call: 'close', handle }),
    };
  }
}
