// The page: opens the GPU, then the two panels.
import { checkWebGPU, init } from '../src/index.js';
import { openDrawing } from './draw.js';
import { openText } from './text.js';

const place = document.querySelector('#device');

async function start() {
  const found = await checkWebGPU();
  place.textContent = found.message;
  place.classList.toggle('error', !found.ok);
  if (!found.ok) return;
  const runtime = await init();
  // Shown to the tests, which drive the page.
  window.demo = { runtime };
  await Promise.all([openDrawing(runtime), openText(runtime)]);
}

start().catch((error) => {
  place.textContent = error.message;
  place.classList.add('error');
});
