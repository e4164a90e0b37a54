// `npx vite demo` serves the page, `npx vite build demo` makes dist/demo.
export default {
  base: './',
  worker: { format: 'es' },
  build: { outDir: '../dist/demo', emptyOutDir: true, target: 'es2022' },
};
