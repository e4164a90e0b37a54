// Drawing on 28 x 28 pixels, classified live by a bundle.
import { singleFlight } from '../src/index.js';

const names = ['T-shirt', 'Trousers', 'Pullover', 'Dress', 'Coat', 'Sandal', 'Shirt', 'Sneaker', 'Bag', 'Ankle boot'];
const size = 28;

function softmax(logits) {
  const most = Math.max(...logits);
  const powers = Array.from(logits, (v) => Math.exp(v - most));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((p) => p / sum);
}

export async function openDrawing(runtime) {
  const status = document.querySelector('#draw-status');
  const pad = document.querySelector('#pad'), paper = pad.getContext('2d');
  const small = new OffscreenCanvas(size, size).getContext('2d', { willReadFrequently: true });
  const rows = names.map((name) => {
    const row = document.createElement('li');
    row.innerHTML = '<span></span><i></i><b></b>';
    row.firstChild.textContent = name;
    document.querySelector('#classes').append(row);
    return row;
  });

  let classify, scaling;
  try {
    const model = await runtime.loadBundle('garments.tg');
    scaling = model.info.metadata;
    classify = await model.attach('logits');
  } catch (error) {
    status.textContent = `${error.message} (\`scripts/web demo\` trains and exports the classifier.)`;
    return;
  }

  const show = singleFlight(async () => {
    small.drawImage(pad, 0, 0, size, size);
    const { data } = small.getImageData(0, 0, size, size);
    const images = Float32Array.from({ length: size * size }, (_, i) =>
      (data[4 * i] / 255 - scaling.pixel_mean) / scaling.pixel_standard_deviation);
    const { value } = await classify.run({ images });
    softmax(value).forEach((p, i) => {
      rows[i].children[1].style.width = `${100 * p}%`;
      rows[i].children[2].textContent = `${Math.round(100 * p)}%`;
    });
  });
  const update = () => show().catch((error) => { status.textContent = error.message; });

  let last = null;
  const at = (event) => {
    const box = pad.getBoundingClientRect();
    return [(event.clientX - box.left) * pad.width / box.width, (event.clientY - box.top) * pad.height / box.height];
  };
  const line = (event) => {
    const [x, y] = at(event);
    paper.strokeStyle = '#ddd';
    paper.lineWidth = 28;
    paper.lineCap = paper.lineJoin = 'round';
    paper.beginPath();
    paper.moveTo(...(last ?? [x, y]));
    paper.lineTo(x, y);
    paper.stroke();
    last = [x, y];
    update();
  };
  const clear = () => {
    paper.fillStyle = '#000';
    paper.fillRect(0, 0, pad.width, pad.height);
    update();
  };
  pad.addEventListener('pointerdown', (event) => {
    pad.setPointerCapture(event.pointerId);
    last = null;
    line(event);
  });
  pad.addEventListener('pointermove', (event) => { if (event.buttons) line(event); });
  document.querySelector('#clear').addEventListener('click', clear);
  clear();
}
