// What can be handed over to another thread instead of being copied.

/** The buffers of typed arrays in `value` that are its own and can be handed over. */
export function transferables(value, out = new Set()) {
  if (value instanceof ArrayBuffer) out.add(value);
  else if (ArrayBuffer.isView(value)) {
    if (value.buffer instanceof ArrayBuffer && value.byteLength === value.buffer.byteLength) out.add(value.buffer);
  } else if (value && typeof value === 'object' && !(value instanceof WebAssembly.Module)) {
    Object.values(value).forEach((v) => transferables(v, out));
  }
  return out;
}
