// f16 inputs of a page.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import { toHalves } from '../../web/src/program.js';

describe('numbers of f16', () => {
  /** The f16 with these bits, without the sign. */
  const half = (bits) => {
    const fraction = bits & 1023;
    const exponent = bits >> 10;
    if (exponent === 0) return fraction * 2 ** -24;
    return exponent === 31 ? (fraction === 0 ? Infinity : NaN) : (1024 + fraction) * 2 ** (exponent - 25);
  };

  it('are what they were', () => {
    const all = Float32Array.from({ length: 0x7c01 }, (_, bits) => half(bits));
    assert.deepEqual(toHalves(all), all);
    assert.deepEqual(toHalves(all.map((v) => -v)).map((v) => -v), all);
    assert.ok(Number.isNaN(toHalves([NaN])[0]));
  });

  it('are rounded to nearest and even', () => {
    for (let bits = 0; bits < 0x7bff; bits++) {
      const [low, high] = [half(bits), half(bits + 1)];
      const middle = (low + high) / 2;
      const near = [middle - (high - low) / 8, middle, middle + (high - low) / 8];
      assert.deepEqual([...toHalves(near)], [low, bits % 2 === 0 ? low : high, high]);
    }
    assert.deepEqual([...toHalves([65519, 65520, -1e30])], [65504, Infinity, -Infinity]);
  });
});
