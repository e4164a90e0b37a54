// C++ models compiled by the WebAssembly module and trained on the GPU: the recorded losses.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';

import { init, ModuleError } from '../../web/src/index.js';
import { gpu } from './gpu.mjs';
import { batches } from './workloads.mjs';

const root = new URL('../../', import.meta.url);
const wasm = readFileSync(new URL('build/web/bin/workloads.wasm', root));
const reference = JSON.parse(readFileSync(new URL('tests/data/reference_losses.json', root)));

describe('a C++ module', () => {
  let tg, module;
  before(async () => {
    tg = await init({ gpu });
    module = await tg.loadModule(wasm);
  });
  after(() => tg.destroy());

  for (const [name, steps, tolerance] of [['W1', 50, 2e-3], ['W3', 50, 2e-3]]) {
    it(`trains ${name} along the recorded losses`, async () => {
      const training = await module.training(name);
      const data = batches(name);
      const losses = [];
      await training.run(Array.from({ length: steps }, (_, t) => data[t % data.length]), { keep: true, onStep: (r) => losses.push(r.loss) });
      const want = reference[`${name}.std`].losses;
      losses.forEach((loss, t) => {
        assert.ok(Math.abs(loss - want[t]) <= tolerance * Math.max(1, Math.abs(want[t])), `step ${t + 1}: loss ${loss}, recorded ${want[t]}`);
      });
      assert.ok(losses.at(-1) < 0.7 * losses[0]);
      await training.destroy();
    });
  }

  it('goes on from its checkpoint bit for bit', async () => {
    const data = batches('W1');
    const first = await module.training('W1');
    for (let t = 0; t < 3; t++) await first.step(data[t], { keep: true });
    const file = await first.save();
    const want = await first.step(data[3], { keep: true });
    await first.destroy();
    const second = await module.training('W1');
    await second.load(file);
    const got = await second.step(data[3], { keep: true });
    assert.deepEqual([got.step, got.loss], [4, want.loss]);
    await second.destroy();
  });

  it('throws what C++ throws, and goes on', async () => {
    await assert.rejects(module.training('W9'), (e) => e instanceof ModuleError && e.cpp === 'GraphError');
    const training = await module.training('W1');
    await assert.rejects(training.step({ x: new Float32Array(3), y: new Float32Array(256) }), /takes 256/);
    await training.destroy();
  });

  it('leaves nothing behind', async () => {
    const use = async () => {
      const training = await module.training('W1');
      await training.destroy();
    };
    // The heap grows by whole steps, so that the first uses may still make it larger.
    for (let i = 0; i < 20; i++) await use();
    const start = await tg.counts();
    for (let i = 0; i < 1000; i++) await use();
    const { buffers, objects, pipelines, heap } = await tg.counts();
    assert.deepEqual({ buffers, objects, pipelines, heap },
      { buffers: start.buffers, objects: start.objects, pipelines: start.pipelines, heap: start.heap });
  });
});
