// The data of the fixed workloads, as tools/workloads.cpp makes it.

/** mulberry32, in [0, 1). */
export function mulberry(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const count = 32;

function sine() {
  const next = mulberry(1001);
  return Array.from({ length: count }, () => {
    const x = Float32Array.from({ length: 256 }, () => (2 * next() - 1) * Math.PI);
    return { x, y: Float32Array.from(x, Math.sin) };
  });
}

function digits(size, seed) {
  const first = mulberry(3001);
  const templates = Float32Array.from({ length: 7840 }, first);
  const next = mulberry(seed);
  return Array.from({ length: count }, () => {
    const x = new Float32Array(size * 784), y = new Int32Array(size);
    for (let row = 0; row < size; row++) {
      y[row] = Math.floor(10 * next());
      for (let j = 0; j < 784; j++) x[row * 784 + j] = 0.5 * templates[y[row] * 784 + j] + 0.5 * next();
    }
    return { x, y };
  });
}

function text() {
  const vocabulary = 65, context = 64, size = 16, length = 65536;
  const first = mulberry(2001);
  const corpus = new Int32Array(length);
  for (let i = 1; i < length; i++) corpus[i] = (corpus[i - 1] * 3 + 7 + Math.floor(first() * 4)) % vocabulary;
  const next = mulberry(2002);
  return Array.from({ length: count }, () => {
    const x = new Int32Array(size * context), y = new Int32Array(size * context);
    for (let row = 0; row < size; row++) {
      const from = Math.floor(next() * (length - context - 1));
      x.set(corpus.subarray(from, from + context), row * context);
      y.set(corpus.subarray(from + 1, from + context + 1), row * context);
    }
    return { x, y };
  });
}

/** Batches of a workload; step t (from 0) uses batch t mod their number. */
export function batches(name) {
  switch (name) {
    case 'W1': return sine();
    case 'W2': case 'W2g': return text();
    case 'W3': return digits(128, 3002);
    case 'W3c': return digits(64, 3003);
    default: throw new Error(`There is no workload ${name}.`);
  }
}
