// A run of the native command, exported and gone on with in JavaScript without WebAssembly.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { gunzipSync } from 'node:zlib';

import { init } from '../../web/src/index.js';
import { gpu } from './gpu.mjs';

const root = new URL('../../', import.meta.url);
const native = new URL(process.env.TENSORGRAD_COMMAND ?? 'build/release/bin/tensorgrad', root).pathname;
const data = '/usr/share/datasets/fashion-mnist';
const command = (...args) => execFileSync(native, args, { encoding: 'utf8' });

describe('an exported run', { skip: !existsSync(native) && 'there is no native build' }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'tensorgrad-export-'));
  const run = join(folder, 'run'), file = join(folder, 'model.tg');
  let tg, model, images, labels;
  before(async () => {
    command('train', 'fashion-mnist', '--model', 'mlp', '--epochs', '1', '--out', run);
    command('export', '--run', run, '--out', file, '--batch', '1,100', '--adapter', JSON.stringify({ adapter: { software: true } }));
    const read = (name, skip) => gunzipSync(readFileSync(join(data, `t10k-${name}-ubyte.gz`))).subarray(skip);
    labels = Int32Array.from(read('labels-idx1', 8).subarray(0, 1000));
    tg = await init({ gpu });
    model = await tg.loadBundle(readFileSync(file));
    const { pixel_mean: mean, pixel_standard_deviation: deviation } = model.info.metadata;
    images = Float32Array.from(read('images-idx3', 16).subarray(0, 784 * 1000), (v) => (v / 255 - mean) / deviation);
  });
  after(async () => {
    await tg?.destroy();
    rmSync(folder, { recursive: true });
  });

  it('classifies as natively', async () => {
    const logits = await model.attach('logits');
    let right = 0;
    for (let from = 0; from < 1000; from += 100) {
      const { value, shape } = await logits.run({ images: images.slice(784 * from, 784 * (from + 100)) });
      assert.deepEqual(shape, [100, 10]);
      for (let i = 0; i < 100; i++) {
        const row = value.subarray(10 * i, 10 * (i + 1));
        right += row.indexOf(Math.max(...row)) === labels[from + i] ? 1 : 0;
      }
    }
    const { accuracy } = JSON.parse(command('eval', '--run', run, '--json'));
    assert.ok(Math.abs(right / 1000 - accuracy) < 0.04, `${right / 1000} here, ${accuracy} natively`);
  });

  it('goes on training, and the native command reads the checkpoint', async () => {
    const batch = model.info.inputs[0].shape[0];
    const feeds = { images: images.slice(0, 784 * batch), labels: labels.slice(0, batch) };
    const first = await model.step(feeds, { keep: true });
    let last = first;
    for (let i = 0; i < 5; i++) last = await model.step(feeds, { keep: true });
    assert.equal(last.step, first.step + 5);
    assert.ok(Number.isFinite(last.loss));
    writeFileSync(join(run, 'model.safetensors'), new Uint8Array(await model.save()));
    const { step } = JSON.parse(command('eval', '--run', run, '--json'));
    assert.equal(step, last.step);
  });
});
