// Turns LLVM IR text into machine code for this processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensorgrad::cpu {

/// A compiled kernel: see `llvm_ir::render`.
using Entry = void (*)(void* const* args, std::int64_t begin, std::int64_t end);

/// Machine code, kept while it is referenced.
class Code {
 public:
  virtual ~Code() = default;
  virtual Entry entry() const = 0;
};

/// The processor that code is compiled for.
struct Processor {
  std::string name;       ///< as LLVM calls it: "znver5"
  int vector_bits = 128;  ///< preferred vector width
  std::string llvm_version;
};

/// A module to compile.
struct Source {
  std::string name;  ///< of the kernel, for error messages
  std::string text;  ///< defines `Jit::entry_name`
};

/// How the modules asked for so far were come by.
struct JitCounts {
  std::size_t compiled = 0, from_disk = 0, from_memory = 0;
};

/// Compiles modules. Text that was compiled before is not compiled again. Thread-safe.
class Jit {
 public:
  /// The function that each module defines.
  static constexpr std::string_view entry_name = "kernel";

  /// Compiled modules are kept in the folder `cache` from one process to the next, or not at all
  /// without one. Without `optimises`, code is made in a fraction of the time and is slow: for
  /// programs that run once. Throws DeviceError where LLVM cannot make code for the processor.
  explicit Jit(const std::filesystem::path& cache = {}, bool optimises = true);
  ~Jit();
  Jit(const Jit&) = delete;
  Jit& operator=(const Jit&) = delete;

  /// One result for each source, compiled on up to `threads` threads. Throws DeviceError with the
  /// kernel's name for a module that LLVM refuses.
  std::vector<std::shared_ptr<const Code>> compile(std::span<const Source> sources, int threads);
  /// The module's IR after all optimisations.
  std::string optimised(const Source& source) const;
  /// The module as assembly of the processor.
  std::string assembly(const Source& source) const;
  const Processor& processor() const;
  JitCounts counts() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tensorgrad::cpu
