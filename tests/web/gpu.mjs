// WebGPU in Node: Dawn on SwiftShader, unless another Vulkan driver is asked for.
import { existsSync } from 'node:fs';

const driver = '/usr/lib/chromium/vk_swiftshader_icd.json';
if (!process.env.VK_ICD_FILENAMES && existsSync(driver)) process.env.VK_ICD_FILENAMES = driver;

// Found from the package's folder, where npm installs it.
const { createRequire } = await import('node:module');
const { pathToFileURL } = await import('node:url');
const require = createRequire(new URL('../../web/package.json', import.meta.url));
const { create, globals } = await import(pathToFileURL(require.resolve('webgpu')));
Object.assign(globalThis, globals);

/** Kept for the life of the process: Dawn ends with it. */
export const gpu = create([]);
