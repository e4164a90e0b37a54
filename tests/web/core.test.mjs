// The compiler as WebAssembly, without a GPU: the same graphs and plans as the native build.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { before, describe, it } from 'node:test';
import { gzipSync } from 'node:zlib';

import { ModuleError } from '../../web/src/errors.js';
import { Module } from '../../web/src/module.js';

const root = new URL('../../', import.meta.url);
const wasm = readFileSync(new URL('build/web/bin/workloads.wasm', root));
const native = new URL(process.env.TENSORGRAD_COMMAND ?? 'build/release/bin/tensorgrad', root).pathname;

describe('the core as WebAssembly', () => {
  let module;
  before(async () => { module = await Module.load(wasm); });

  for (const name of ['workloads', 'demo']) {
    it(`is small in ${name}.wasm`, () => {
      const size = gzipSync(readFileSync(new URL(`build/web/bin/${name}.wasm`, root)), { level: 9 }).length;
      assert.ok(size < 400_000, `${size} bytes as gzip`);
    });
  }

  it('lists its models', () => {
    assert.deepEqual(module.models(), ['W1', 'W2', 'W2g', 'W3', 'W3c']);
  });

  for (const name of ['W1', 'W3', 'W2', 'W3c']) {
    it(`plans ${name} as the native build does`, { skip: !existsSync(native) && 'there is no native build' }, () => {
      const here = new TextDecoder().decode(module.call({ call: 'inspect', model: name, options: {} }));
      const there = execFileSync(native, ['inspect', name, '--plan'], { encoding: 'utf8', maxBuffer: 1 << 28 });
      assert.match(here, /^plan: \d+ kernels/m);
      assert.equal(here, there);
    });
  }

  it('throws C++ exceptions with their class', () => {
    const error = (request) => {
      try {
        module.call(request);
      } catch (e) {
        return e;
      }
      return null;
    };
    const unknown = error({ call: 'inspect', model: 'W9', options: {} });
    assert.ok(unknown instanceof ModuleError);
    assert.equal(unknown.cpp, 'GraphError');
    assert.match(unknown.message, /no model "W9"; it has "W1", /);
    assert.equal(error({ call: 'dance' }).cpp, 'FormatError');
    assert.equal(error({ call: 'inspect', model: 'W1', options: { a: 'b' } }).cpp, 'FormatError');
    // The module works after an exception as before.
    assert.equal(module.models().length, 5);
  });
});
