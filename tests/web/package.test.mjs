// The npm package as it would be published: what is in it, and that it installs and imports.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';

const source = fileURLToPath(new URL('../../web/', import.meta.url));

describe('the npm package', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tensorgrad-package-'));
  let packed;
  before(() => {
    [packed] = JSON.parse(execFileSync('npm', ['pack', '--json', '--pack-destination', folder], { cwd: source, encoding: 'utf8' }));
  });
  after(() => rmSync(folder, { recursive: true }));

  it('holds the runtime, its types, and nothing else', () => {
    const files = packed.files.map((f) => f.path);
    for (const file of ['package.json', 'src/index.js', 'src/index.d.ts', 'src/worker.js']) assert.ok(files.includes(file), `${file} is missing`);
    assert.deepEqual(files.filter((f) => !/^(package\.json|README\.md|LICENSE|src\/[a-z]+\.(js|d\.ts))$/.test(f)), []);
  });

  it('installs and imports', () => {
    const project = join(folder, 'project');
    execFileSync('mkdir', [project]);
    writeFileSync(join(project, 'package.json'), JSON.stringify({ name: 'project', private: true, type: 'module' }));
    execFileSync('npm', ['install', '--offline', '--no-audit', '--no-fund', join(folder, packed.filename)], { cwd: project });
    writeFileSync(join(project, 'use.js'), `
      import { checkWebGPU, init, WebGPUUnavailableError } from '@tensorgrad/web';
      import { existsSync } from 'node:fs';
      import { fileURLToPath } from 'node:url';
      const found = await checkWebGPU();
      const error = await init().catch((e) => e);
      const worker = fileURLToPath(import.meta.resolve('@tensorgrad/web/worker'));
      console.log(JSON.stringify([found.ok, error instanceof WebGPUUnavailableError, existsSync(worker)]));`);
    assert.deepEqual(JSON.parse(execFileSync('node', ['use.js'], { cwd: project, encoding: 'utf8' })), [false, true, true]);
  });
});
