// Is there a WebGPU here, and if not, what can a person do?

const advice = 'Use a current Chrome, Edge, Safari or Firefox on a computer or phone with a graphics driver.';

/**
 * Looks for a usable WebGPU adapter.
 * @returns {{ok: boolean, message: string, adapter?: GPUAdapter, software?: boolean}} `message` is
 *   a sentence or two fit to show a person.
 */
export async function checkWebGPU(options = {}) {
  const gpu = options.gpu ?? globalThis.navigator?.gpu;
  if (!gpu) {
    if (globalThis.isSecureContext === false) {
      return { ok: false, message: 'WebGPU is only there on pages served over https or from localhost. Open this page by such an address.' };
    }
    const agent = globalThis.navigator?.userAgent ?? '';
    if (/Firefox\//.test(agent)) {
      return { ok: false, message: 'This Firefox has no WebGPU. Update it (Windows needs version 141, macOS 145) or use a current Chrome, Edge or Safari.' };
    }
    if (/Chrom(e|ium)\//.test(agent) && /Linux/.test(agent) && !/Android/.test(agent)) {
      return { ok: false, message: 'This browser has WebGPU switched off. Open chrome://flags, enable "Unsafe WebGPU Support", start the browser again, or update it.' };
    }
    if (/Safari\//.test(agent) && !/Chrom/.test(agent)) {
      return { ok: false, message: 'This Safari has no WebGPU. It needs macOS 26 or iOS 26; or use a current Chrome or Edge.' };
    }
    return { ok: false, message: `This browser has no WebGPU. ${advice}` };
  }
  let adapter = null;
  try {
    adapter = await gpu.requestAdapter({ powerPreference: options.powerPreference });
  } catch (error) {
    return { ok: false, message: `WebGPU does not start: ${error.message}. ${advice}` };
  }
  if (!adapter) {
    return { ok: false, message: 'WebGPU is there, but finds no graphics adapter. Check that hardware acceleration is on in the settings of the browser and that the graphics driver is up to date.' };
  }
  const info = adapter.info ?? {};
  const software = Boolean(info.isFallbackAdapter) || /swiftshader|llvmpipe/i.test(`${info.architecture} ${info.description} ${info.device}`);
  const name = info.description || [info.vendor, info.architecture].filter(Boolean).join(' ') || 'a graphics adapter';
  return {
    ok: true, adapter, software,
    message: software ? `WebGPU runs without graphics hardware (${name}); it works, slowly.` : `WebGPU runs on ${name}.`,
  };
}
