// The page beside the native command on the same software adapter: equal parameters, equal random
// bits, and checkpoints that the page goes on from.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';

import { parseSafetensors } from '../../web/src/format.js';
import { noBrowser, openBrowser, serve } from './browser.mjs';
import { batches } from './workloads.mjs';

const root = new URL('../../', import.meta.url);
const native = new URL(process.env.TENSORGRAD_COMMAND ?? 'build/release/bin/tensorgrad', root).pathname;
const driver = '/usr/lib/chromium/vk_swiftshader_icd.json';
const steps = 50;

describe('the page beside the native command', { skip: noBrowser || (!existsSync(native) && 'there is no native build') }, () => {
  let server, browser, file, losses;
  const folder = mkdtempSync(join(tmpdir(), 'tensorgrad-native-'));
  before(async () => {
    const out = execFileSync(native, ['bench', 'W1', '--device', 'webgpu', '--seconds', '0.01', '--steps', `${steps}`, '--checkpoint', folder, '--json'],
      { encoding: 'utf8', env: { ...process.env, VK_DRIVER_FILES: driver } });
    ({ losses } = JSON.parse(out));
    file = readFileSync(join(folder, 'W1.safetensors'));
    server = await serve(root);
    browser = await openBrowser();
    await browser.page.goto(`${server.url}tests/web/empty.html`);
    const data = batches('W1').map(({ x, y }) => ({ x: [...x], y: [...y] }));
    await browser.page.evaluate((d) => { globalThis.batches = d; }, data);
  });
  after(async () => {
    await browser?.close();
    server?.close();
    rmSync(folder, { recursive: true });
  });

  it(`trains W1 to the same parameters in ${steps} steps, and goes on from its checkpoint`, async () => {
    const seen = await browser.page.evaluate(async ([count, bytes]) => {
      const { init } = await import('/web/src/index.js');
      const { batches: data } = globalThis;
      const feed = (t) => ({ x: Float32Array.from(data[t % data.length].x), y: Float32Array.from(data[t % data.length].y) });
      const values = async (training) => (await training.params()).map((p) => ({ name: p.name, values: [...p.values] }));
      const tg = await init();
      const module = await tg.loadModule('/build/web/bin/workloads.wasm');
      const training = await module.training('W1');
      const found = { losses: [] };
      await training.run(Array.from({ length: count }, (_, t) => feed(t)), { onStep: (r) => found.losses.push(r.loss) });
      found.trained = await values(training);
      found.next = await training.step(feed(count));
      const other = await module.training('W1');
      await other.load(Uint8Array.from(bytes));
      found.loaded = await values(other);
      found.after = await other.step(feed(count));
      await tg.destroy();
      return found;
    }, [steps, [...file]]);
    assert.equal(losses.length, steps);
    assert.ok(losses.at(-1) < 0.3 * losses[0]);
    seen.losses.forEach((loss, t) => assert.ok(Math.abs(loss - losses[t]) <= 1e-6, `step ${t + 1}: loss ${loss}, natively ${losses[t]}`));

    const { tensors } = parseSafetensors(file);
    assert.equal(seen.trained.length, 6);
    for (const { name, values } of seen.trained) {
      const want = tensors.get(name).values;
      assert.equal(values.length, want.length);
      const apart = values.reduce((most, v, i) => Math.max(most, Math.abs(v - want[i])), 0);
      assert.ok(apart <= 1e-6, `${name} is ${apart} apart`);
    }
    for (const { name, values } of seen.loaded) assert.deepEqual(values, [...tensors.get(name).values], name);
    assert.deepEqual([seen.next.step, seen.after.step], [steps + 1, steps + 1]);
    assert.ok(Math.abs(seen.next.loss - seen.after.loss) <= 1e-6, `loss ${seen.after.loss} after loading, else ${seen.next.loss}`);
  });

  it('draws the same random bits', async () => {
    const bits = await browser.page.evaluate(async () => {
      const { init } = await import('/web/src/index.js');
      const tg = await init();
      const module = await tg.loadModule('/build/web/bin/random.wasm');
      const training = await module.training('random');
      const found = {};
      for (const [name, seed] of [['original', 0], ['partitionable', 42]]) {
        const forward = await training.attach(name);
        found[name] = [...(await forward.run({ key: Uint32Array.of(0, seed) })).value];
      }
      await tg.destroy();
      return found;
    });
    // What tests/ops/random_test.cpp holds the native devices to.
    assert.deepEqual(bits.original, [2467461003, 428148500, 1688610540, 3840466878, 2562233961]);
    assert.deepEqual(bits.partitionable, [2098992034, 2919706841, 2646866425, 2409546199]);
  });
});
