// Files: plan bundles and safetensors checkpoints.
import { FormatError } from './errors.js';

const version = 1;
const text = new TextDecoder('utf-8', { fatal: true });

function bytesOf(data) {
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  throw new FormatError('A file is given as an ArrayBuffer or a typed array.');
}

function headerOf(bytes, from, size, what) {
  if (!(size >= 2 && from + size <= bytes.length)) throw new FormatError(`${what}: the header says ${size} bytes, the file has ${bytes.length}.`);
  try {
    return JSON.parse(text.decode(bytes.subarray(from, from + size)));
  } catch (error) {
    throw new FormatError(`${what}: the header is not JSON: ${error.message}`);
  }
}

/** {header, data(begin, end)} of a bundle. Throws FormatError for anything else. */
export function parseBundle(source, what = 'The bundle') {
  const bytes = bytesOf(source);
  if (bytes.length < 16 || String.fromCharCode(...bytes.subarray(0, 8)) !== 'tgbundle') {
    throw new FormatError(`${what} is not a tensorgrad bundle (\`tensorgrad export\` writes one).`);
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const found = view.getUint32(8, true);
  if (found !== version) throw new FormatError(`${what} has version ${found}; this package reads version ${version}.`);
  const size = view.getUint32(12, true);
  const header = headerOf(bytes, 16, size, what);
  const start = 16 + size;
  const length = bytes.length - start;
  if (header.format !== 'tensorgrad-bundle' || header.bytes !== length) {
    throw new FormatError(`${what} is damaged: it holds ${length} bytes of data, its header says ${header.bytes}.`);
  }
  for (const key of ['modules', 'programs', 'params', 'states', 'inputs', 'forwards']) {
    if (!Array.isArray(header[key])) throw new FormatError(`${what} is damaged: its header has no list "${key}".`);
  }
  const data = (begin, end) => {
    if (!(begin >= 0 && begin <= end && end <= length)) throw new FormatError(`${what} is damaged: it has no bytes ${begin} to ${end}.`);
    return bytes.subarray(start + begin, start + end);
  };
  return { header, data };
}

/** {metadata, tensors: Map of name to {shape, values}} of a safetensors file of f32 tensors. */
export function parseSafetensors(source) {
  const what = 'The checkpoint';
  const bytes = bytesOf(source);
  if (bytes.length < 8) throw new FormatError(`${what} is not a safetensors file: it has ${bytes.length} bytes.`);
  const size = Number(new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0, true));
  const header = headerOf(bytes, 8, size, what);
  const tensors = new Map();
  let used = 0;
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') continue;
    const [begin, end] = entry.data_offsets ?? [];
    const count = (entry.shape ?? []).reduce((a, b) => a * b, 1);
    if (entry.dtype !== 'F32' || end - begin !== 4 * count || begin < 0 || 8 + size + end > bytes.length) {
      throw new FormatError(`${what}: the tensor "${name}" is damaged or not of type F32.`);
    }
    used += end - begin;
    tensors.set(name, { shape: entry.shape, values: new Float32Array(bytes.slice(8 + size + begin, 8 + size + end).buffer) });
  }
  if (used !== bytes.length - 8 - size) throw new FormatError(`${what} is damaged: its tensors do not fill it.`);
  return { metadata: header.__metadata__ ?? {}, tensors };
}

/** A safetensors file, as the C++ library writes it: tensors by name. */
export function writeSafetensors(tensors, metadata) {
  const sorted = [...tensors].sort((a, b) => (a.name < b.name ? -1 : 1));
  const header = { __metadata__: metadata };
  let at = 0;
  for (const t of sorted) {
    header[t.name] = { dtype: 'F32', shape: t.shape, data_offsets: [at, at += 4 * t.values.length] };
  }
  let json = JSON.stringify(header);
  let encoded = new TextEncoder().encode(json);
  json += ' '.repeat((8 - (encoded.length % 8)) % 8);
  encoded = new TextEncoder().encode(json);
  const out = new Uint8Array(8 + encoded.length + at);
  new DataView(out.buffer).setBigUint64(0, BigInt(encoded.length), true);
  out.set(encoded, 8);
  let place = 8 + encoded.length;
  for (const t of sorted) {
    out.set(new Uint8Array(t.values.buffer, t.values.byteOffset, t.values.byteLength), place);
    place += t.values.byteLength;
  }
  return out.buffer;
}
