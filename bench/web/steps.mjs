// Times the fixed workloads in Chromium, on its software adapter: from the load of the page to the
// first step, and the steps after that; and how long the page's own thread is held up meanwhile.
//   scripts/web && node bench/web/steps.mjs [WORKLOAD...]
import { openBrowser, serve } from '../../tests/web/browser.mjs';
import { batches } from '../../tests/web/workloads.mjs';

const workloads = process.argv.length > 2 ? process.argv.slice(2) : ['W1', 'W3'];
const steps = 50;

const server = await serve(new URL('../../', import.meta.url));
const browser = await openBrowser();
try {
  for (const name of workloads) {
    const { page } = browser;
    await page.goto(`${server.url}tests/web/empty.html`);
    // Arrays cross to the page as plain ones.
    const data = batches(name).slice(0, 8).map(({ x, y }) => ({ x: [...x], y: [...y], float: y instanceof Float32Array, index: x instanceof Int32Array }));
    await page.evaluate((d) => { globalThis.data = d; }, data);
    const result = await page.evaluate(async ([model, count]) => {
      const feed = (t) => {
        const { x, y, float, index } = globalThis.data[t % globalThis.data.length];
        return { x: index ? Int32Array.from(x) : Float32Array.from(x), y: float ? Float32Array.from(y) : Int32Array.from(y) };
      };
      const first = feed(0);
      const feeds = Array.from({ length: count }, (_, t) => feed(t + 1));
      // All that the package does in the page happens in a call to, or a message from, the worker.
      let work = 0;
      const timed = (f) => function (...args) {
        const from = performance.now();
        const result = f.apply(this, args);
        work = Math.max(work, performance.now() - from);
        return result;
      };
      const start = performance.now();
      const { init } = await import('/web/src/index.js');
      const worker = new Worker('/web/src/worker.js', { type: 'module' });
      worker.postMessage = timed(worker.postMessage.bind(worker));
      const tg = await init({ worker });
      worker.onmessage = timed(worker.onmessage);
      const opened = performance.now();
      const module = await tg.loadModule('/build/web/bin/workloads.wasm');
      const loaded = performance.now();
      const training = await module.training(model);
      await training.step(first);
      const stepped = performance.now();
      // The longest wait of a timer of 1 ms, which includes what the machine does otherwise.
      let last = stepped, pause = 0;
      const ticking = setInterval(() => {
        const now = performance.now();
        pause = Math.max(pause, now - last);
        last = now;
      }, 1);
      work = 0;
      await training.run(feeds);
      const end = performance.now();
      clearInterval(ticking);
      await tg.destroy();
      return { work, pause, open: opened - start, load: loaded - opened, firstStep: stepped - loaded, total: stepped - start, step: (end - stepped) / count };
    }, [name, steps]);
    const ms = (v) => `${v.toFixed(v < 100 ? 1 : 0)} ms`;
    console.log(`${name}: first step ${ms(result.total)} after the page's load (worker and GPU ${ms(result.open)}, WebAssembly ${ms(result.load)}, `
      + `model and first step ${ms(result.firstStep)}); a step ${ms(result.step)}; `
      + `longest work of the package in the page ${ms(result.work)}, longest pause of the page ${ms(result.pause)}`);
  }
} finally {
  await browser.close();
  server.close();
}
