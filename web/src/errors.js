// The errors of the package. All derive from TensorgradError; they keep their class when they cross
// from the worker to the page.

/** Base of all errors of this package. */
export class TensorgradError extends Error {
  constructor(message) {
    super(message);
    this.name = new.target.name;
  }
}
/** There is no usable WebGPU; the message can be shown to a person. */
export class WebGPUUnavailableError extends TensorgradError {}
/** The adapter lacks limits or features that a program needs. */
export class UnsupportedError extends TensorgradError {}
/** The GPU is gone (driver reset, machine asleep, worker ended); open the runtime anew. */
export class DeviceLostError extends TensorgradError {}
/** The GPU refused a shader, a pipeline or a command. */
export class GPUProgramError extends TensorgradError {}
/** The GPU or the page has no memory for this. */
export class OutOfMemoryError extends TensorgradError {}
/** A file that is damaged or of another kind or version. */
export class FormatError extends TensorgradError {}
/** An argument that does not fit: an unknown name, a wrong type, a wrong number of elements. */
export class InputError extends TensorgradError {}
/** An exception of the C++ module; `cpp` is its class. */
export class ModuleError extends TensorgradError {
  constructor(message, cpp = 'Error') {
    super(message);
    this.cpp = cpp;
  }
}
/** The object was destroyed before or during the call. */
export class DestroyedError extends TensorgradError {}

const classes = { TensorgradError, WebGPUUnavailableError, UnsupportedError, DeviceLostError,
  GPUProgramError, OutOfMemoryError, FormatError, InputError, ModuleError, DestroyedError };

/** An error as a message can carry it, and back. */
export function packError(error) {
  return { name: error?.name ?? 'Error', message: String(error?.message ?? error), cpp: error?.cpp };
}
export function unpackError({ name, message, cpp }) {
  if (classes[name]) return new classes[name](message, cpp);
  const error = new Error(message);
  error.name = name;
  return error;
}
