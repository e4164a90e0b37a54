// A character transformer trained on a text in the page.
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

import { singleFlight } from '../src/index.js';
import start from './text.txt?raw';

const $ = (selector) => document.querySelector(selector);

/** A text as indices of its characters, most frequent first; what is rare is one character. */
function encode(text, most = 96) {
  const counts = new Map();
  for (const c of text) counts.set(c, (counts.get(c) ?? 0) + 1);
  const characters = [...counts].sort((a, b) => b[1] - a[1]).slice(0, most).map(([c]) => c);
  const index = new Map(characters.map((c, i) => [c, i]));
  return { characters, codes: Int32Array.from([...text], (c) => index.get(c) ?? 0) };
}

function* batches(codes, batch, context) {
  for (;;) {
    const x = new Int32Array(batch * context), y = new Int32Array(batch * context);
    for (let row = 0; row < batch; row++) {
      const from = Math.floor(Math.random() * (codes.length - context - 1));
      x.set(codes.subarray(from, from + context), row * context);
      y.set(codes.subarray(from + 1, from + context + 1), row * context);
    }
    yield { x, y };
  }
}

function draw(logits, temperature = 0.8) {
  const most = Math.max(...logits);
  const powers = Array.from(logits, (v) => Math.exp((v - most) / temperature));
  let left = Math.random() * powers.reduce((a, b) => a + b);
  return Math.max(0, powers.findIndex((p) => (left -= p) <= 0));
}

class Chart {
  constructor(place) {
    this.place = place;
    this.data = [[], [], []];
    this.plot = new uPlot({ width: place.clientWidth, height: 200, scales: { x: { time: false } },
      series: [{ label: 'step' }, { label: 'loss', stroke: '#2f6fdb44' }, { label: 'mean', stroke: '#2f6fdb', width: 2 }],
      axes: [{ stroke: '#888', grid: { stroke: '#8883' } }, { stroke: '#888', grid: { stroke: '#8883' } }] }, this.data, place);
    new ResizeObserver(() => this.plot.setSize({ width: place.clientWidth, height: 200 })).observe(place);
    this.shown = 0;
  }
  add(step, loss) {
    const mean = this.data[2].at(-1) ?? loss;
    this.data[0].push(step);
    this.data[1].push(loss);
    this.data[2].push(mean + 0.05 * (loss - mean));
    const now = performance.now();
    if (now - this.shown < 200) return;
    this.shown = now;
    // A long run is thinned out, so that drawing costs the same at every length.
    const every = Math.ceil(this.data[0].length / 1000);
    this.plot.setData(this.data.map((d) => (every === 1 ? d : d.filter((_, i) => i % every === 0))));
  }
  clear() {
    this.data = [[], [], []];
    this.plot.setData(this.data);
  }
}

export async function openText(runtime) {
  const corpus = $('#corpus'), form = $('#model'), status = $('#text-status'), trainButton = $('#train');
  corpus.value = start;
  const chart = new Chart($('#chart'));
  const tell = (text, bad = false) => {
    status.textContent = text;
    status.classList.toggle('error', bad);
  };
  const fail = (error) => tell(error.message, true);

  const module = await runtime.loadModule('demo.wasm');
  let training = null, next = null, shown = null, built = '', data = null, stop = null;

  const wanted = () => Object.fromEntries([...new FormData(form)].map(([k, v]) => [k, Number(v)]));
  /** The model that the form and the text describe; replaced in place when they change. */
  async function prepare() {
    const options = wanted();
    data = encode(corpus.value);
    if (data.codes.length < options.context + 2) throw new Error(`The text has ${data.codes.length} characters; a context of ${options.context} needs at least ${options.context + 2}.`);
    const { lr, ...shape } = { ...options, vocabulary: Math.max(2, data.characters.length) };
    const key = JSON.stringify([shape, data.characters]);
    if (key !== built) {
      tell('Compiling …');
      if (training) {
        await training.replace({ ...shape, lr });
      } else {
        training = await module.training('text', { ...shape, lr });
        next = await training.attach('next');
        shown = await training.attach('shown');
      }
      built = key;
      chart.clear();
      fill('#layer', options.layers, 'layer');
      fill('#head', options.heads, 'head');
    }
    await training.setLr(lr);
    return options;
  }
  function fill(selector, count, word) {
    $(selector).replaceChildren(...Array.from({ length: count }, (_, i) => new Option(`${word} ${i + 1}`, i)));
  }

  /** The last `context` characters of `codes`, and where the last one is. */
  function windowOf(codes, context) {
    const tail = codes.slice(-context);
    const x = new Int32Array(context);
    x.set(tail);
    return { x, last: tail.length - 1 };
  }
  const sample = singleFlight(async (context, length = 160) => {
    const codes = [...data.codes.subarray(0, Math.min(8, context))];
    const { characters } = data;
    for (let i = 0; i < length; i++) {
      const { x, last } = windowOf(codes, context);
      const { value, shape } = await next.run({ x });
      const width = shape[2];
      codes.push(draw(value.subarray(last * width, (last + 1) * width)));
    }
    $('#sample').textContent = codes.map((c) => characters[c] ?? '?').join('');
  });
  const look = singleFlight(async (context) => {
    const name = `attention.${$('#layer').value || 0}`, head = Number($('#head').value || 0);
    const { x } = windowOf([...data.codes.subarray(0, context)], context);
    const { captures } = await shown.run({ x }, { captures: [name] });
    const canvas = $('#attention');
    canvas.width = canvas.height = context;
    const image = new ImageData(context, context);
    const values = captures[name].subarray(head * context * context, (head + 1) * context * context);
    values.forEach((v, i) => image.data.set([47, 111, 219, 255 * Math.min(1, Math.sqrt(v))], 4 * i));
    canvas.getContext('2d').putImageData(image, 0, 0);
  });

  async function train() {
    const options = await prepare();
    stop = new AbortController();
    trainButton.textContent = 'Pause';
    const from = performance.now();
    let steps = 0;
    try {
      await training.run(batches(data.codes, options.batch, options.context), {
        signal: stop.signal,
        onStep: ({ loss, step }) => {
          steps++;
          chart.add(step, loss);
          tell(`step ${step}, loss ${loss.toFixed(3)}, ${(steps / (performance.now() - from) * 1000).toFixed(1)} steps a second`);
          if (step % 50 === 0) {
            look(options.context).catch(fail);
            sample(options.context).catch(fail);
          }
        },
      });
    } finally {
      stop = null;
      trainButton.textContent = 'Train';
    }
    await look(options.context);
  }
  trainButton.addEventListener('click', () => {
    if (stop) stop.abort();
    else train().catch(fail);
  });
  form.addEventListener('change', () => {
    const running = stop;
    running?.abort();
    // The running loop ends with its steps in flight; then the new model takes its place.
    if (running) setTimeout(() => { if (!stop) train().catch(fail); }, 300);
  });
  form.addEventListener('submit', (event) => event.preventDefault());
  $('#restart').addEventListener('click', async () => {
    try {
      await prepare();
      await training.reset();
      chart.clear();
      tell('The model has its initial values again.');
    } catch (error) {
      fail(error);
    }
  });
  for (const id of ['#layer', '#head']) $(id).addEventListener('change', () => training && look(wanted().context).catch(fail));

  $('#save').addEventListener('click', async () => {
    try {
      await prepare();
      const file = await training.save({ characters: JSON.stringify(data.characters) });
      const link = document.createElement('a');
      link.href = URL.createObjectURL(new Blob([file]));
      link.download = 'text.safetensors';
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    } catch (error) {
      fail(error);
    }
  });
  async function loadCheckpoint(file) {
    const options = await prepare();
    await training.load(await file.arrayBuffer());
    tell(`${file.name} is loaded.`);
    await look(options.context);
    await sample(options.context);
  }
  $('#load').addEventListener('change', ({ target }) => {
    if (target.files[0]) loadCheckpoint(target.files[0]).catch(fail);
    target.value = '';
  });

  // Files may be dropped anywhere: texts and checkpoints.
  addEventListener('dragover', (event) => {
    event.preventDefault();
    corpus.classList.add('over');
  });
  addEventListener('dragleave', () => corpus.classList.remove('over'));
  addEventListener('drop', async (event) => {
    event.preventDefault();
    corpus.classList.remove('over');
    const [file] = event.dataTransfer.files;
    try {
      if (file?.name.endsWith('.safetensors')) await loadCheckpoint(file);
      else if (file) corpus.value = await file.text();
    } catch (error) {
      fail(error);
    }
  });

  for (const id of ['#train', '#restart', '#save']) $(id).disabled = false;
  Object.assign(window.demo, { training: () => training });
}
