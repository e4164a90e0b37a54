// Times training steps of this library beside others, on one page of Chromium in one run, on its
// software adapter. The others are not part of the repository: say where they are.
//   scripts/web && node bench/web/compare.mjs [--typescript FILE] [--jax FOLDER] [WORKLOAD...]
//     --typescript FILE   the bundled module of tensorgrad for TypeScript (index.js), before 0.1
//     --jax FOLDER        npm's @jax-js/jax, as unpacked
import { basename, dirname, resolve } from 'node:path';
import { parseArgs } from 'node:util';

import { openBrowser, serve } from '../../tests/web/browser.mjs';
import { batches } from '../../tests/web/workloads.mjs';

const { values: places, positionals } = parseArgs({
  allowPositionals: true,
  options: { typescript: { type: 'string' }, jax: { type: 'string' } },
});
const workloads = positionals.length > 0 ? positionals : ['W1', 'W3'];
// Rounds follow one another so that what else the machine does meets all alike.
const rounds = 3, warm = 5, steps = 20;

const folders = [new URL('../../', import.meta.url)];
const libraries = { tensorgrad: null };
if (places.typescript) {
  folders.push(dirname(resolve(places.typescript)));
  libraries.typescript = `/${basename(places.typescript)}`;
}
if (places.jax) {
  folders.push(resolve(places.jax));
  libraries.jax = '/dist/index.js';
}

const server = await serve(...folders);
const browser = await openBrowser();
try {
  for (const workload of workloads) {
    const { page } = browser;
    await page.goto(`${server.url}tests/web/empty.html`);
    // Arrays cross to the page as plain ones.
    const data = batches(workload).slice(0, 4).map(({ x, y }) => ({ x: [...x], y: [...y], classes: y instanceof Int32Array }));
    await page.evaluate((d) => {
      globalThis.batches = d.map(({ x, y, classes }) => ({ x: Float32Array.from(x), y: classes ? Int32Array.from(y) : Float32Array.from(y) }));
    }, data);
    const found = await page.evaluate(async ([name, urls, { rounds, warm, steps }]) => {
      const kinds = await import('/bench/web/libraries.js');
      const { init } = await import('/web/src/index.js');
      const tg = await init();
      const module = await tg.loadModule('/build/web/bin/workloads.wasm');
      const opened = {};
      let params;
      for (const [kind, url] of Object.entries(urls)) {
        const model = await kinds[kind](name, { module, params, library: url && await import(url) });
        params ??= model.params;
        opened[kind] = { model, losses: [], times: [] };
      }
      const { batches } = globalThis;
      for (let round = 0; round < rounds; round++) {
        for (const one of Object.values(opened)) {
          for (let i = 0; i < warm + steps; i++) {
            const start = performance.now();
            const loss = await one.model.step(batches[one.losses.length % batches.length]);
            if (i >= warm) one.times.push(performance.now() - start);
            one.losses.push(loss);
          }
        }
      }
      for (const { model } of Object.values(opened)) await model.close();
      await tg.destroy();
      return Object.fromEntries(Object.entries(opened).map(([kind, { losses, times }]) => [kind, { losses, times }]));
    }, [workload, libraries, { rounds, warm, steps }]);
    const median = (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];
    const own = median(found.tensorgrad.times);
    for (const [kind, { losses, times }] of Object.entries(found)) {
      const middle = median(times);
      console.log(`${workload} ${kind}: ${middle.toFixed(2)} ms a step (least ${Math.min(...times).toFixed(2)} of ${times.length})`
        + `${kind === 'tensorgrad' ? '' : `, ${(middle / own).toFixed(1)} times as long`}; losses ${losses[0].toPrecision(6)} to ${losses.at(-1).toPrecision(6)}`);
    }
  }
} finally {
  await browser.close();
  server.close();
}
