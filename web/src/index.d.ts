/**
 * Arrays that go to and come from programs; `bool` tensors are Uint8Array of 0 and 1, `f16` ones
 * Float32Array, rounded to f16 on the way in.
 */
export type TensorArray = Float32Array | Int32Array | Uint32Array | Uint8Array;
/** Inputs by name. Lists of numbers and single numbers are converted. */
export type Feeds = Record<string, TensorArray | number[] | number>;
export type DType = 'f32' | 'f16' | 'i32' | 'u32' | 'bool';
/** An input; an extent of -1 is open and follows from what is fed. */
export interface InputSpec { name: string; dtype: DType; shape: number[] }
export interface ParamValue { name: string; shape: number[]; values: Float32Array }

/** A learning rate, or one that depends on the step (from 1): the JSON that checkpoints hold. */
export type Schedule =
  | number
  | { kind: 'linear'; start: number; final: number; steps: number }
  | { kind: 'cosine'; peak: number; final: number; steps: number }
  | { kind: 'warmup'; steps: number; after: Schedule }
  | { kind: 'staircase'; lr: number; factor: number; every: number }
  | { kind: 'multi_step'; lr: number; milestones: number[]; factor: number }
  | { kind: 'from_step'; first: number; after: Schedule };

export interface RunOptions {
  /** Tensors marked by `capture` to read back: their names, or all. */
  captures?: string[] | true;
  /** Copy the arrays that are fed to the worker; by default they are handed over and then empty. */
  keep?: boolean;
}
export interface StepResult {
  /** Before the update. */
  loss: number;
  /** The number of this step, from 1. */
  step: number;
  lr: number;
  captures: Record<string, TensorArray>;
}
export interface ForwardResult {
  value: TensorArray;
  shape: number[];
  captures: Record<string, TensorArray>;
  /** Shapes of `value` and of all captures. */
  shapes: Record<string, number[]>;
}

/** A function of the model, on its training's current parameters. */
export interface Forward {
  readonly name: string;
  run(feeds: Feeds, options?: RunOptions): Promise<ForwardResult>;
}

export interface TrainingInfo {
  inputs: InputSpec[];
  forwards: Record<string, InputSpec[]>;
  params: { name: string; shape: number[] }[];
  /** False for a bundle made for inference. */
  trainable: boolean;
  metadata: Record<string, string>;
  step: number;
}

/** A model with its parameters on the GPU. Calls happen in the order in which they are made. */
export interface Training {
  readonly info: TrainingInfo;
  /** Forward, backward and update as one submission. A call that throws changes nothing. */
  step(feeds: Feeds, options?: RunOptions): Promise<StepResult>;
  /** A step for each batch, the next submitted while earlier ones run. The last result, or null. */
  run(batches: Iterable<Feeds> | AsyncIterable<Feeds>, options?: RunOptions & {
    onStep?: (result: StepResult) => void | Promise<void>;
    signal?: AbortSignal;
    /** Steps that may be in flight beyond the one waited for (2). */
    ahead?: number;
  }): Promise<StepResult | null>;
  attach(name: string): Promise<Forward>;
  params(): Promise<ParamValue[]>;
  /** Replaces parameters by name; the others stay. */
  setParams(values: Record<string, Float32Array | number[]>): Promise<void>;
  /** From the next step on; nothing is compiled again. */
  setLr(schedule: Schedule): Promise<void>;
  /** Back to the initial values and an empty optimizer. */
  reset(): Promise<void>;
  /** A safetensors file that the native library reads. */
  save(metadata?: Record<string, string>): Promise<ArrayBuffer>;
  load(file: ArrayBuffer | Uint8Array): Promise<void>;
  /** The model made anew with other options, in place: attached forwards stay good. */
  replace(options: Record<string, number>): Promise<TrainingInfo>;
  destroy(): Promise<void>;
}

/** A C++ module (`tensorgrad_add_web_module`). */
export interface Module {
  readonly models: string[];
  training(model: string, options?: Record<string, number>): Promise<Training>;
  destroy(): Promise<void>;
}

export interface Runtime {
  /** What it runs on, fit to show a person. */
  readonly description: string;
  readonly features: string[];
  readonly limits: Record<string, number>;
  loadModule(source: string | URL | BufferSource | WebAssembly.Module): Promise<Module>;
  /** A file of `tensorgrad export`. Throws FormatError, or UnsupportedError naming what lacks. */
  loadBundle(source: string | URL | ArrayBuffer | Uint8Array): Promise<Training>;
  /** Counts of submissions, pipelines and live buffers, for tests and for the curious. */
  counts(): Promise<Record<string, number>>;
  /** Loses the GPU on purpose, to see what a page does then. */
  loseDevice(): Promise<void>;
  destroy(): Promise<void>;
}

export interface InitOptions {
  /** False runs in the page itself; a Worker runs in that one, which imports `@tensorgrad/web/worker`. */
  worker?: boolean | Worker;
  powerPreference?: 'low-power' | 'high-performance';
  /** Another WebGPU than `navigator.gpu`, such as Dawn in Node; runs without a worker. */
  gpu?: unknown;
}
/** Opens the GPU. Throws WebGPUUnavailableError with a message fit to show a person. */
export function init(options?: InitOptions): Promise<Runtime>;

export interface WebGPUCheck { ok: boolean; message: string; software?: boolean }
/** Whether there is a usable WebGPU, and if not, what a person can do. */
export function checkWebGPU(options?: { gpu?: unknown }): Promise<WebGPUCheck>;

/** Keeps one call of `f` in flight; of those made meanwhile only the latest runs, the others give undefined. */
export function singleFlight<A extends unknown[], R>(f: (...args: A) => Promise<R>): (...args: A) => Promise<R | undefined>;

export class TensorgradError extends Error {}
export class WebGPUUnavailableError extends TensorgradError {}
export class UnsupportedError extends TensorgradError {}
export class DeviceLostError extends TensorgradError {}
export class GPUProgramError extends TensorgradError {}
export class OutOfMemoryError extends TensorgradError {}
export class FormatError extends TensorgradError {}
export class InputError extends TensorgradError {}
export class ModuleError extends TensorgradError { cpp: string }
export class DestroyedError extends TensorgradError {}
