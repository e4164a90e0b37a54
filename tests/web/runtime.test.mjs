// The JavaScript runtime on bundles made by hand: steps, forwards, order, files, errors, leaks.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { checkWebGPU, DestroyedError, DeviceLostError, FormatError, GPUProgramError, init, InputError, singleFlight, UnsupportedError,
  WebGPUUnavailableError } from '../../web/src/index.js';
import { lineFit } from './bundle.mjs';
import { gpu } from './gpu.mjs';

const x = Float32Array.of(1, 2, 3, 4), y = Float32Array.of(2, 4, 6, 8);

/** Losses and weights of the fit in double. */
function expected(steps, lr = () => 0.1) {
  let w = 0.5;
  const losses = [];
  for (let t = 1; t <= steps; t++) {
    losses.push(x.reduce((s, v, i) => s + (w * v - y[i]) ** 2, 0) / 4);
    w -= lr(t) * x.reduce((s, v, i) => s + 2 * (w * v - y[i]) * v, 0) / 4;
  }
  return { losses, w };
}
const near = (a, b, tolerance = 1e-5) => assert.ok(Math.abs(a - b) <= tolerance * Math.max(1, Math.abs(b)), `${a} is not near ${b}`);

describe('runtime', () => {
  let tg;
  before(async () => { tg = await init({ gpu }); });
  after(() => tg.destroy());

  it('says what it runs on', async () => {
    const found = await checkWebGPU({ gpu });
    assert.ok(found.ok);
    assert.match(found.message, /WebGPU runs/);
    assert.ok(tg.limits.maxBufferSize > 0);
  });

  it('trains, captures and counts steps', async () => {
    const training = await tg.loadBundle(lineFit());
    const want = expected(3);
    for (let t = 0; t < 3; t++) {
      const { loss, step, lr, captures } = await training.step({ x, y }, { captures: t === 0 ? ['error'] : [] });
      near(loss, want.losses[t]);
      assert.equal(step, t + 1);
      assert.equal(lr, 0.1);
      if (t === 0) assert.deepEqual([...captures.error], [-1.5, -3, -4.5, -6]);
    }
    const [w] = await training.params();
    assert.deepEqual([w.name, w.shape], ['w', [1]]);
    near(w.values[0], want.w);
    await training.destroy();
  });

  it('keeps the order of calls that are not waited for', async () => {
    const training = await tg.loadBundle(lineFit());
    const early = [training.step({ x, y }), training.step({ x, y }), training.setLr(0), training.step({ x, y }), training.params()];
    const late = training.step({ x, y });
    const [a, b, , c, params] = await Promise.all(early);
    const want = expected(2);
    assert.deepEqual([a.step, b.step, c.step, (await late).step], [1, 2, 3, 4]);
    near(a.loss, want.losses[0]);
    near(params[0].values[0], want.w);
    near((await late).loss, c.loss, 0);
    await training.destroy();
  });

  it('follows a schedule', async () => {
    const training = await tg.loadBundle(lineFit((h) => ({ ...h, optimizer: { ...h.optimizer, lr: { kind: 'linear', start: 0.1, final: 0, steps: 4 } } })));
    const want = expected(6, (t) => 0.1 * (1 - Math.min(t, 4) / 4));
    const seen = [];
    const last = await training.run(Array.from({ length: 6 }, () => ({ x, y })), { onStep: (r) => seen.push(r.loss) });
    assert.equal(last.step, 6);
    seen.forEach((loss, i) => near(loss, want.losses[i]));
    await assert.rejects(training.setLr(-1), InputError);
    await training.destroy();
  });

  it('runs forwards of the sizes a bundle has', async () => {
    const training = await tg.loadBundle(lineFit());
    const scale = await training.attach('scale');
    assert.deepEqual([...(await scale.run({ x: Float32Array.of(2, 4) })).value], [1, 2]);
    assert.deepEqual((await scale.run({ x: Float32Array.of(2, 4, 6) })).shape, [3]);
    await assert.rejects(scale.run({ x: Float32Array.of(1) }), /for inputs of shapes \[\[2\]\] and \[\[3\]\], not \[\[1\]\]/);
    await assert.rejects(training.attach('other'), /there are scale/);
    await training.destroy();
  });

  it('refuses wrong feeds and changes nothing', async () => {
    const training = await tg.loadBundle(lineFit());
    await assert.rejects(training.step({ x }), /input "y" is missing/);
    await assert.rejects(training.step({ x, y, z: x }), /no input "z"; the inputs are x, y/);
    await assert.rejects(training.step({ x, y: Int32Array.of(1, 2, 3, 4) }), /fed a Int32Array, but it takes a Float32Array/);
    await assert.rejects(training.step({ x, y: Float32Array.of(1) }), /fed 1 values, but \[4\] takes 4/);
    await assert.rejects(training.step({ x, y }, { captures: ['hidden'] }), /no output "hidden"/);
    assert.equal((await training.step({ x, y })).step, 1);
    await assert.rejects(training.setParams({ w: Float32Array.of(1, 2) }), InputError);
    await training.setParams({ w: Float32Array.of(2) });
    assert.equal((await training.step({ x, y })).loss, 0);
    await training.destroy();
    await assert.rejects(training.step({ x, y }), InputError);
  });

  it('saves and goes on from a checkpoint', async () => {
    const first = await tg.loadBundle(lineFit());
    await first.step({ x, y });
    const file = await first.save({ note: 'kept' });
    const next = await first.step({ x, y });
    const second = await tg.loadBundle(lineFit());
    await second.load(file);
    // SGD without momentum keeps no state, so its files do not tell a resumed training from weights.
    assert.equal((await second.step({ x, y })).loss, next.loss);
    await second.reset();
    near((await second.step({ x, y })).loss, expected(1).losses[0]);
    const bytes = new Uint8Array(file);
    await assert.rejects(second.load(bytes.slice(0, -1)), FormatError);
    await assert.rejects(second.load(Uint8Array.of(1, 2, 3)), FormatError);
    await Promise.all([first.destroy(), second.destroy()]);
  });

  it('refuses damaged, foreign and newer bundles', async () => {
    const good = lineFit();
    const newer = good.slice();
    newer[8] = 9;
    await assert.rejects(tg.loadBundle(newer), /version 9; this package reads version 1/);
    await assert.rejects(tg.loadBundle(good.slice(0, -4)), /damaged/);
    await assert.rejects(tg.loadBundle(new Uint8Array(100)), /not a tensorgrad bundle/);
    await assert.rejects(tg.loadBundle(lineFit((h) => ({ ...h, needs: { limits: { maxBufferSize: 1e15 }, features: ['mind-reading'] } }))),
      (e) => e instanceof UnsupportedError && /maxBufferSize 1000000000000000 \(it has \d+\), the feature mind-reading/.test(e.message));
  });

  it('reports a shader that is wrong, and goes on', async () => {
    const wrong = await tg.loadBundle(lineFit((h) => ({ ...h, modules: h.modules.map((m) => ({ ...m, code: m.code.replace('w[0]', 'v[0]') })) })));
    await assert.rejects(wrong.step({ x, y }), GPUProgramError);
    await wrong.destroy();
    const training = await tg.loadBundle(lineFit());
    near((await training.step({ x, y })).loss, expected(1).losses[0]);
    await training.destroy();
  });

  it('leaves nothing behind', async () => {
    const use = async () => {
      const training = await tg.loadBundle(lineFit());
      await training.step({ x, y });
      await training.destroy();
    };
    await use();
    const start = await tg.counts();
    for (let i = 0; i < 1000; i++) await use();
    const end = await tg.counts();
    assert.equal(end.buffers, start.buffers);
    assert.equal(end.objects, start.objects);
    assert.equal(end.pipelines, start.pipelines);
  });
});

describe('a runtime that ends', () => {
  it('rejects calls after the device is lost', async () => {
    const tg = await init({ gpu });
    const training = await tg.loadBundle(lineFit());
    await training.step({ x, y });
    await tg.loseDevice();
    await new Promise((done) => { setTimeout(done, 20); });
    await assert.rejects(training.step({ x, y }), DeviceLostError);
    await assert.rejects(tg.loadBundle(lineFit()), DeviceLostError);
  });
  it('rejects calls after it is destroyed', async () => {
    const tg = await init({ gpu });
    const training = await tg.loadBundle(lineFit());
    await tg.destroy();
    await assert.rejects(training.step({ x, y }), (e) => e instanceof InputError || e instanceof DestroyedError);
  });
  it('says what to do without WebGPU', async () => {
    await assert.rejects(init({ worker: false }), (e) => e instanceof WebGPUUnavailableError && /no WebGPU/.test(e.message));
    await assert.rejects(init({ gpu: { requestAdapter: async () => null } }), /finds no graphics adapter/);
  });
});

describe('singleFlight', () => {
  it('runs the first and the latest', async () => {
    const ran = [];
    const slow = singleFlight(async (n) => {
      await new Promise((done) => { setTimeout(done, 5); });
      ran.push(n);
      return n;
    });
    assert.deepEqual(await Promise.all([slow(1), slow(2), slow(3)]), [1, undefined, 3]);
    assert.deepEqual(ran, [1, 3]);
    assert.equal(await slow(4), 4);
  });
});
