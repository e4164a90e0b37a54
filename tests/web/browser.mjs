// Chromium with WebGPU on a software adapter, and a server of files for it.
import { createReadStream, existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const require = createRequire(new URL('../../web/package.json', import.meta.url));
const { chromium } = (await import(pathToFileURL(require.resolve('playwright-core')))).default;

const executable = process.env.CHROMIUM ?? '/usr/bin/chromium';
/** Why there can be no browser tests here, or false. */
export const noBrowser = existsSync(executable) ? false : `there is no ${executable}`;

const types = { '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm' };

/** Serves the folders, the first that has a file wins: {url, close}. */
export function serve(...folders) {
  const roots = folders.map((f) => (f instanceof URL ? fileURLToPath(f) : f));
  const server = createServer((request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url, 'http://localhost').pathname)).replace(/\/$/, '/index.html');
    const file = roots.map((root) => join(root, path)).find((f) => existsSync(f) && statSync(f).isFile());
    if (!file) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { 'content-type': types[extname(file)] ?? 'application/octet-stream', 'cache-control': 'no-store' });
    createReadStream(file).pipe(response);
  });
  return new Promise((done) => {
    server.listen(0, '127.0.0.1', () => done({ url: `http://localhost:${server.address().port}/`, close: () => server.close() }));
  });
}

/** A browser of its own with a page; `webgpu` false is one without WebGPU. */
export async function openBrowser({ webgpu = true } = {}) {
  const profile = mkdtempSync(join(tmpdir(), 'tensorgrad-browser-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: executable, headless: true, ignoreDefaultArgs: true,
    args: ['--headless', '--no-sandbox', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
      '--remote-debugging-pipe', `--user-data-dir=${profile}`,
      ...(webgpu ? ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'] : ['--disable-features=WebGPU', '--disable-gpu']), 'about:blank'],
  });
  const page = context.pages()[0] ?? await context.newPage();
  return {
    page,
    async close() {
      await context.close();
      rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    },
  };
}
