// The fixed workloads W1 and W3 written for the libraries that are compared, in the page. Each
// function opens one: {step(batch) -> loss, which is waited for, close()}.

/** This library; `params` are the initial values, which the others are given: [{name, shape, values}]. */
export async function tensorgrad(name, { module }) {
  const training = await module.training(name);
  const params = await training.params();
  return {
    params,
    step: async (batch) => (await training.step(batch, { keep: true })).loss,
    close: () => training.destroy(),
  };
}

/** tensorgrad for TypeScript, of before 0.1; `library` is its module. */
export async function typescript(name, { library: tg, params }) {
  const { Module, add, matmul, mul, nn, relu, sub, sumAll } = tg;
  class SineMlp extends Module {
    l1 = new nn.Linear(1, 64);
    l2 = new nn.Linear(64, 64);
    l3 = new nn.Linear(64, 1);
  }
  class DigitMlp extends Module {
    fc1 = new nn.Linear(784, 256);
    fc2 = new nn.Linear(256, 10);
  }
  const f32 = (...shape) => ({ shape, dtype: 'f32' });
  const models = {
    W1: {
      make: () => new SineMlp(),
      loss: (m, { x, y }) => {
        const error = sub(m.l3.fwd(relu(m.l2.fwd(relu(m.l1.fwd(x))))), y);
        return mul(sumAll(mul(error, error)), 1 / 256);
      },
      inputs: { x: f32(256, 1), y: f32(256, 1) }, lr: 0.005,
    },
    W3: {
      make: () => new DigitMlp(),
      loss: (m, { x, y }) => mul(sumAll(nn.crossEntropyLast(m.fc2.fwd(relu(m.fc1.fwd(x))), y)), 1 / 128),
      inputs: { x: f32(128, 784), y: { shape: [128], dtype: 'i32' } }, lr: 1e-3,
    },
  };
  const { make, loss, inputs, lr } = models[name];
  const training = await tg.compileModule(make, loss, { inputs, adam: { lr } });
  await training.uploadParams(Object.fromEntries(params.map((p) => [p.name, p.values])));
  return { step: (batch) => training.step(batch), close: () => training.destroy() };
}

/** jax-js on WebGPU; `library` is its module. */
export async function jax(name, { library, params }) {
  const { blockUntilReady, defaultDevice, init, jit, nn, numpy: np, tree, valueAndGrad } = library;
  const devices = await init('webgpu');
  if (!devices.includes('webgpu')) throw new Error(`jax-js has no WebGPU here, but ${devices}`);
  defaultDevice('webgpu');

  // An array is used up by the function that takes it, unless it is handed on as `.ref`.
  const dense = (p, layer, x) => np.matmul(x, p[`${layer}.W`]).add(p[`${layer}.b`]);
  const models = {
    W1: {
      loss: (p, { x, y }) => np.mean(np.square(dense(p, 'l3', nn.relu(dense(p, 'l2', nn.relu(dense(p, 'l1', x))))).sub(y))),
      batch: ({ x, y }) => ({ x: np.array(x).reshape([256, 1]), y: np.array(y).reshape([256, 1]) }), lr: 0.005,
    },
    W3: {
      loss: (p, { x, y }) => nn.logSoftmax(dense(p, 'fc2', nn.relu(dense(p, 'fc1', x)))).mul(nn.oneHot(y, 10)).sum(-1).mean().mul(-1),
      batch: ({ x, y }) => ({ x: np.array(x).reshape([128, 784]), y: np.array(y, { dtype: np.int32 }) }), lr: 1e-3,
    },
  };
  const { loss, batch, lr } = models[name];
  const each = (f) => Object.fromEntries(params.map((p) => [p.name, f(p.name)]));
  const zeros = () => each((key) => np.zeros(params.find((p) => p.name === key).shape));
  let state = {
    values: Object.fromEntries(params.map((p) => [p.name, np.array(p.values).reshape(p.shape)])),
    first: zeros(), second: zeros(), rate: null,
  };
  const update = jit((values, first, second, rates, data) => {
    const [value, gradient] = valueAndGrad(loss)(tree.ref(values), data);
    const [rate, root] = [rates.ref.slice(0), rates.slice(1)];
    const m = each((k) => first[k].mul(0.9).add(gradient[k].ref.mul(0.1)));
    const v = each((k) => second[k].mul(0.999).add(np.square(gradient[k]).mul(0.001)));
    const next = each((k) => values[k].sub(m[k].ref.mul(rate.ref).div(np.sqrt(v[k].ref).mul(root.ref).add(1e-8))));
    rate.dispose();
    root.dispose();
    return [value, next, m, v];
  });
  let t = 0;
  return {
    async step(data) {
      t++;
      // As in the other two, what depends on the step alone is computed outside of the program.
      const rates = np.array(Float32Array.of(lr / (1 - 0.9 ** t), 1 / Math.sqrt(1 - 0.999 ** t)));
      const [value, values, first, second] = update(state.values, state.first, state.second, rates, batch(data));
      state = { values, first, second };
      return (await value.data())[0];
    },
    async close() {
      await blockUntilReady(tree.flatten(state.values)[0]);
    },
  };
}
