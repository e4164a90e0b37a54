// Bundles made by hand, for tests of the runtime alone.

/** The bytes of a bundle with this header; `arrays` are its data, each [begin, end] in turn. */
export function makeBundle(header, arrays = []) {
  const parts = [];
  let at = 0;
  const places = arrays.map((a) => {
    const begin = at;
    parts.push([begin, new Uint8Array(a.buffer, a.byteOffset, a.byteLength)]);
    at = Math.ceil((begin + a.byteLength) / 16) * 16;
    return [begin, begin + a.byteLength];
  });
  const full = { format: 'tensorgrad-bundle', needs: {}, modules: [], programs: [], params: [], states: [], inputs: [], forwards: [],
    ...(typeof header === 'function' ? header(places) : header), bytes: at };
  let json = JSON.stringify(full);
  json += ' '.repeat((16 - (new TextEncoder().encode(json).length % 16)) % 16);
  const text = new TextEncoder().encode(json);
  const out = new Uint8Array(16 + text.length + at);
  out.set(new TextEncoder().encode('tgbundle'));
  new DataView(out.buffer).setUint32(8, 1, true);
  new DataView(out.buffer).setUint32(12, text.length, true);
  out.set(text, 16);
  for (const [begin, bytes] of parts) out.set(bytes, 16 + text.length + begin);
  return out;
}

const fit = `
@group(0) @binding(0) var<storage, read_write> w: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> y: array<f32>;
@group(0) @binding(3) var<storage, read> hyper: array<f32>;
@group(0) @binding(4) var<storage, read_write> loss: array<f32>;
@group(0) @binding(5) var<storage, read_write> error: array<f32>;
@compute @workgroup_size(1) fn main() {
  var sum = 0.0;
  var gradient = 0.0;
  for (var i = 0u; i < 4u; i++) {
    let e = w[0] * x[i] - y[i];
    error[i] = e;
    sum += e * e;
    gradient += 2.0 * e * x[i];
  }
  loss[0] = sum / 4.0;
  w[0] = w[0] - hyper[0] * gradient / 4.0;
}`;
const scale = `
@group(0) @binding(0) var<storage, read> w: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> value: array<f32>;
@compute @workgroup_size(1) fn main(@builtin(global_invocation_id) g: vec3u) { value[g.x] = w[0] * x[g.x]; }`;

/** One weight fitted to y = w x by gradient descent: values of four points. */
export function lineFit(change = (header) => header) {
  const input = (name, count, buffer) => ({ name, dtype: 'f32', shape: [count], buffer });
  return makeBundle((places) => change({
    seed: '7', step: 0,
    optimizer: { kind: 'SGD', lr: 0.1, momentum: 0, dampening: 0, weight_decay: 0, nesterov: false },
    params: [{ name: 'w', shape: [1], offset: 0 }],
    states: [{ name: 'parameters', bytes: 4, data: places[0] }],
    inputs: [{ name: 'x', dtype: 'f32', shape: [4] }, { name: 'y', dtype: 'f32', shape: [4] }],
    forwards: [{ name: 'scale', inputs: [{ name: 'x', dtype: 'f32', shape: [-1] }] }],
    modules: [
      { code: fit, entry: 'main', types: ['storage', 'read-only-storage', 'read-only-storage', 'read-only-storage', 'storage', 'storage'] },
      { code: scale, entry: 'main', types: ['read-only-storage', 'read-only-storage', 'storage'] },
    ],
    programs: [
      { role: 'step', name: '', buffers: [{ state: 'parameters' }, { bytes: 16 }, { bytes: 16 }, { bytes: 8 }, { bytes: 4 }, { bytes: 16 }],
        inputs: [input('x', 4, 1), input('y', 4, 2), input('$hyper', 2, 3)],
        outputs: [{ name: 'loss', dtype: 'f32', shape: [], buffer: 4 }, { name: 'error', dtype: 'f32', shape: [4], buffer: 5 }],
        passes: [{ module: 0, groups: [1, 1, 1], bindings: [[0, 0, 4], [1, 0, 16], [2, 0, 16], [3, 0, 8], [4, 0, 4], [5, 0, 16]] }] },
      ...[2, 3].map((n) => ({ role: 'forward', name: 'scale', buffers: [{ state: 'parameters' }, { bytes: 4 * n }, { bytes: 4 * n }],
        inputs: [input('x', n, 1)], outputs: [{ name: 'value', dtype: 'f32', shape: [n], buffer: 2 }],
        passes: [{ module: 1, groups: [n, 1, 1], bindings: [[0, 0, 4], [1, 0, 4 * n], [2, 0, 4 * n]] }] })),
    ],
  }), [Float32Array.of(0.5)]);
}
