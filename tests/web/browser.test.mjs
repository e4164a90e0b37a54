// The package in Chromium: in the page and in its worker, and what goes wrong there.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { noBrowser, openBrowser, serve } from './browser.mjs';
import { lineFit } from './bundle.mjs';

const root = new URL('../../', import.meta.url);

describe('in Chromium', { skip: noBrowser }, () => {
  let server, browser;
  before(async () => {
    server = await serve(root);
    browser = await openBrowser();
    await browser.page.goto(`${server.url}tests/web/empty.html`);
  });
  after(async () => {
    await browser?.close();
    server?.close();
  });
  const bundle = [...lineFit()];

  for (const worker of [true, false]) {
    it(worker ? 'trains in a worker' : 'trains in the page', async () => {
      const { losses, message, weight } = await browser.page.evaluate(async ([bytes, inWorker]) => {
        const { init } = await import('/web/src/index.js');
        const tg = await init({ worker: inWorker });
        const training = await tg.loadBundle(Uint8Array.from(bytes));
        const batch = () => ({ x: Float32Array.of(1, 2, 3, 4), y: Float32Array.of(2, 4, 6, 8) });
        const found = [];
        await training.run([batch(), batch(), batch()], { onStep: (r) => found.push(r.loss) });
        let error = '';
        await training.step({ x: Float32Array.of(1) }).catch((e) => { error = `${e.name}: ${e.message}`; });
        const [w] = await training.params();
        await tg.destroy();
        return { losses: found, message: error, weight: w.values[0] };
      }, [bundle, worker]);
      assert.ok(Math.abs(losses[0] - 16.875) < 1e-4, `${losses[0]}`);
      assert.ok(losses[2] < losses[1] && losses[1] < losses[0]);
      assert.ok(weight > 0.5);
      assert.match(message, /^InputError: .*input "y" is missing/);
    });
  }

  it('hands arrays over, or copies them', async () => {
    const lengths = await browser.page.evaluate(async (bytes) => {
      const { init } = await import('/web/src/index.js');
      const tg = await init();
      const training = await tg.loadBundle(Uint8Array.from(bytes));
      const kept = Float32Array.of(1, 2, 3, 4), given = Float32Array.of(2, 4, 6, 8);
      await training.step({ x: kept, y: kept }, { keep: true });
      await training.step({ x: given, y: Float32Array.of(2, 4, 6, 8) });
      await tg.destroy();
      return [kept.length, given.length];
    }, bundle);
    assert.deepEqual(lengths, [4, 0]);
  });

  it('says that the worker ended, and opens anew', async () => {
    const seen = await browser.page.evaluate(async (bytes) => {
      const { init } = await import('/web/src/index.js');
      const worker = new Worker('/web/src/worker.js', { type: 'module' });
      const tg = await init({ worker });
      const training = await tg.loadBundle(Uint8Array.from(bytes));
      worker.terminate();
      const names = [];
      await training.params().catch((e) => names.push(e.name));
      await training.params().catch((e) => names.push(e.name));
      const again = await init();
      const second = await again.loadBundle(Uint8Array.from(bytes));
      names.push((await second.params())[0].name);
      await again.destroy();
      return names;
    }, bundle);
    assert.deepEqual(seen, ['DeviceLostError', 'DeviceLostError', 'w']);
  });

  it('says that the device is lost', async () => {
    const name = await browser.page.evaluate(async (bytes) => {
      const { init } = await import('/web/src/index.js');
      const tg = await init();
      const training = await tg.loadBundle(Uint8Array.from(bytes));
      await tg.loseDevice();
      await new Promise((done) => { setTimeout(done, 50); });
      return training.params().then(() => 'nothing', (e) => e.name);
    }, bundle);
    assert.equal(name, 'DeviceLostError');
  });
});

describe('in Chromium without WebGPU', { skip: noBrowser }, () => {
  it('says what to do', async () => {
    const server = await serve(root);
    const browser = await openBrowser({ webgpu: false });
    try {
      await browser.page.goto(`${server.url}tests/web/empty.html`);
      const { name, message } = await browser.page.evaluate(async () => {
        const { init } = await import('/web/src/index.js');
        return init().then(() => ({ name: 'nothing' }), (e) => ({ name: e.name, message: e.message }));
      });
      assert.equal(name, 'WebGPUUnavailableError');
      assert.match(message, /WebGPU/);
    } finally {
      await browser.close();
      server.close();
    }
  });
});
