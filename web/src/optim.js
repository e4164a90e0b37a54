// What a step uploads for the optimizer, with the formulas of the C++ core (train/update.cpp).
import { InputError } from './errors.js';

/** The rate of a schedule, as the checkpoint's JSON has it, at a step (from 1). */
export function rateAt(schedule, step) {
  if (typeof schedule === 'number') return schedule;
  const done = (steps) => Math.min(step, steps) / steps;
  switch (schedule.kind) {
    case 'linear':
      return schedule.start + (schedule.final - schedule.start) * done(schedule.steps);
    case 'cosine':
      return schedule.final + 0.5 * (schedule.peak - schedule.final) * (1 + Math.cos(Math.PI * done(schedule.steps)));
    case 'warmup':
      return step <= schedule.steps ? rateAt(schedule.after, 0) * done(schedule.steps) : rateAt(schedule.after, step - schedule.steps);
    case 'staircase':
      return schedule.lr * schedule.factor ** Math.floor(Math.max(step - 1, 0) / schedule.every);
    case 'multi_step':
      return schedule.lr * schedule.factor ** schedule.milestones.filter((m) => m < step).length;
    case 'from_step':
      return step < schedule.first ? 0 : rateAt(schedule.after, step - schedule.first + 1);
    default:
      throw new InputError(`There is no learning-rate schedule of kind "${schedule.kind}".`);
  }
}

/** Throws InputError for what is no learning rate or schedule. */
export function checkSchedule(schedule) {
  const rate = rateAt(schedule, 1);
  if (!(Number.isFinite(rate) && rate >= 0)) throw new InputError(`The learning rate is ${rate}, not a finite number of at least 0.`);
}

function adam(o, step, lr) {
  const first = 1 - o.beta1 ** step;
  const second = 1 - o.beta2 ** step;
  return o.eps_on_uncorrected ? [lr * Math.sqrt(second) / first, 1] : [lr / first, 1 / Math.sqrt(second)];
}

const numbers = {
  SGD: (o, step, lr) => [lr, step === 1 ? 1 : 1 - o.dampening],
  Adam: adam,
  AdamW: (o, step, lr) => [...adam(o, step, lr), lr * o.weight_decay],
  RMSprop: (o, step, lr) => [lr],
  Adagrad: (o, step, lr) => [lr / (1 + (step - 1) * o.lr_decay)],
  Lion: (o, step, lr) => [lr, lr * o.weight_decay],
};

/** Learning rate and corrections of a step (from 1), as the program reads them. */
export function hyper(optimizer, step) {
  return Float32Array.from(numbers[optimizer.kind](optimizer, step, rateAt(optimizer.lr, step)));
}
/** Whether this package knows the optimizer's formulas. */
export const knowsOptimizer = (kind) => Object.hasOwn(numbers, kind);
