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
      const names = [];
      // What is under way when the worker ends is rejected as well.
      const pending = training.run(Array.from({ length: 50 }, () => ({ x: Float32Array.of(1, 2, 3, 4), y: Float32Array.of(2, 4, 6, 8) })))
        .catch((e) => names.push(e.name));
      worker.terminate();
      await pending;
      await training.params().catch((e) => names.push(e.name));
      await training.params().catch((e) => names.push(e.name));
      const again = await init();
      const second = await again.loadBundle(Uint8Array.from(bytes));
      names.push((await second.params())[0].name);
      await again.destroy();
      return names;
    }, bundle);
    assert.deepEqual(seen, ['DeviceLostError', 'DeviceLostError', 'DeviceLostError', 'w']);
  });

  it('leaves the compiler, the GPU and the copying of arrays to the worker', async (t) => {
    const seen = await browser.page.evaluate(async () => {
      const { init } = await import('/web/src/index.js');
      const found = { compiled: 0, copied: 0, messages: 0, longest: 0 };
      // Everything that the package does in the page happens in a call to, or a message from, the worker.
      const timed = (work) => function (...args) {
        const start = performance.now();
        try {
          return work.apply(this, args);
        } finally {
          found.longest = Math.max(found.longest, performance.now() - start);
        }
      };
      for (const name of ['compile', 'compileStreaming', 'instantiate', 'instantiateStreaming']) {
        WebAssembly[name] = () => { found.compiled++; throw new Error('not in the page'); };
      }
      navigator.gpu.requestAdapter = () => { found.compiled++; throw new Error('not in the page'); };
      const worker = new Worker('/web/src/worker.js', { type: 'module' });
      const post = worker.postMessage.bind(worker);
      worker.postMessage = timed((message, transfer = []) => {
        found.messages++;
        for (const array of Object.values(message.args?.[0] ?? {})) {
          if (ArrayBuffer.isView(array) && !transfer.includes(array.buffer)) found.copied += array.byteLength;
        }
        post(message, transfer);
      });
      const tg = await init({ worker });
      worker.onmessage = timed(worker.onmessage);
      const module = await tg.loadModule('/build/web/bin/workloads.wasm');
      const training = await module.training('W3');
      const batch = () => ({ x: new Float32Array(128 * 784).fill(0.5), y: new Int32Array(128) });
      found.messages = 0;
      await training.run(Array.from({ length: 20 }, batch));
      await tg.destroy();
      return found;
    });
    t.diagnostic(`longest work of the package in the page: ${seen.longest.toFixed(2)} ms`);
    assert.equal(seen.compiled, 0);
    assert.equal(seen.copied, 0);
    assert.equal(seen.messages, 21);
  });

  it('says which program the GPU refuses, and goes on', async () => {
    const wrong = lineFit((h) => ({ ...h, modules: h.modules.map((m) => ({ ...m, code: m.code.replace('w[0]', 'v[0]') })) }));
    const { name, message, loss } = await browser.page.evaluate(async ([good, bad]) => {
      const { init } = await import('/web/src/index.js');
      const tg = await init();
      const batch = () => ({ x: Float32Array.of(1, 2, 3, 4), y: Float32Array.of(2, 4, 6, 8) });
      const refused = await tg.loadBundle(Uint8Array.from(bad));
      const error = await refused.step(batch()).catch((e) => e);
      const training = await tg.loadBundle(Uint8Array.from(good));
      const result = await training.step(batch());
      await tg.destroy();
      return { name: error.name, message: error.message, loss: result.loss };
    }, [bundle, [...wrong]]);
    assert.equal(name, 'GPUProgramError');
    assert.match(message, /The GPU refuses/);
    assert.ok(Math.abs(loss - 16.875) < 1e-4, `${loss}`);
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
