// The demonstration page in Chromium: a small transformer trained for 50 steps, a picture classified.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { after, before, describe, it } from 'node:test';

import { noBrowser, openBrowser, serve } from './browser.mjs';

const root = new URL('../../', import.meta.url);
const folder = fileURLToPath(new URL('web/', root));

describe('the demonstration page', { skip: noBrowser }, () => {
  let server, browser, page;
  const errors = [];
  before(async () => {
    execFileSync('npx', ['vite', 'build', 'demo', '--logLevel', 'error'], { cwd: folder });
    server = await serve(new URL('web/dist/demo/', root), new URL('build/web/bin/', root));
    browser = await openBrowser();
    ({ page } = browser);
    page.on('pageerror', (error) => errors.push(error.message));
    await page.setViewportSize({ width: 360, height: 740 });
    await page.goto(`${server.url}index.html`);
  });
  after(async () => {
    await browser?.close();
    server?.close();
  });

  it('trains, pauses and shows what it does', { timeout: 240000 }, async () => {
    await page.waitForSelector('#train:not([disabled])', { timeout: 60000 });
    for (const [name, value] of [['layers', 1], ['width', 32], ['heads', 2], ['context', 16], ['batch', 8], ['lr', 0.01]]) {
      await page.fill(`[name=${name}]`, String(value));
    }
    await page.click('#train');
    const status = () => page.textContent('#text-status');
    await page.waitForFunction(() => /^step 1,|^step \d+,/.test(document.querySelector('#text-status').textContent), null, { timeout: 120000 });
    const first = Number(/loss ([\d.]+)/.exec(await status())[1]);
    await page.waitForFunction(() => Number(/^step (\d+)/.exec(document.querySelector('#text-status').textContent)?.[1]) >= 60, null, { timeout: 120000 });
    await page.click('#train');
    await page.waitForFunction(() => document.querySelector('#train').textContent === 'Train');
    const last = Number(/loss ([\d.]+)/.exec(await status())[1]);
    assert.ok(last < first - 0.3, `loss ${first} at first, ${last} at last`);
    await page.waitForFunction(() => document.querySelector('#sample').textContent.length > 100, null, { timeout: 60000 });
    assert.equal(await page.$eval('#attention', (c) => c.width), 16);
    // Another model in the same place.
    await page.fill('[name=layers]', '2');
    await page.click('#train');
    await page.waitForFunction(() => document.querySelector('#layer').length === 2 && /^step/.test(document.querySelector('#text-status').textContent), null, { timeout: 120000 });
    await page.click('#train');
  });

  it('fits a phone', async () => {
    const [content, view] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(content <= view, `${content} of ${view} pixels`);
    await page.screenshot({ path: fileURLToPath(new URL('build/web/demo.png', root)), fullPage: true });
  });

  it('classifies a drawing', { skip: !existsSync(new URL('web/demo/public/garments.tg', root)) && 'no garments.tg is exported' }, async () => {
    await page.$eval('#pad', (pad) => {
      const send = (type, x, y) => pad.dispatchEvent(new PointerEvent(type, { clientX: pad.getBoundingClientRect().left + x, clientY: pad.getBoundingClientRect().top + y, buttons: 1, pointerId: 1 }));
      pad.setPointerCapture = () => {};
      send('pointerdown', 60, 60);
      for (let i = 0; i <= 16; i++) send('pointermove', 60 + 10 * i, 60 + 8 * i);
    });
    await page.waitForFunction(() => [...document.querySelectorAll('#classes b')].some((b) => /\d+%/.test(b.textContent)), null, { timeout: 60000 });
    const sum = await page.$$eval('#classes b', (list) => list.reduce((s, b) => s + parseInt(b.textContent, 10), 0));
    assert.ok(sum >= 95 && sum <= 105, `${sum}%`);
  });

  it('raises no errors', () => assert.deepEqual(errors, []));
});
