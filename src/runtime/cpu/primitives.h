// oneDNN primitives in order, over the caller's buffers and scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernel/kernel.h"

namespace tensorgrad::cpu {

/// Keeps oneDNN to one thread in a scope: it decides on the number when a primitive is made and
/// asks again when it runs, so both happen under a guard.
class SingleThread {
 public:
  SingleThread();
  SingleThread(const SingleThread&) = delete;
  SingleThread& operator=(const SingleThread&) = delete;
  ~SingleThread();

 private:
  int before_ = 0;  ///< 0: there is nothing to restore
};

/// Attributes of every primitive here: scratch memory is given by the caller.
dnnl::primitive_attr attributes();

/// A sequence of primitives. Prepared once, then run by several threads, each with a slot of its
/// own.
class Primitives {
 public:
  /// A memory of the sequence, by number.
  using Id = std::size_t;

  explicit Primitives(int slots);
  const dnnl::engine& engine() const { return engine_; }

  /// The caller's buffer of an access, seen as `desc`.
  Id bind(const kernel::Access& access, const dnnl::memory::desc& desc);
  /// Working memory.
  Id scratch(const dnnl::memory::desc& desc);
  void add(dnnl::primitive primitive, std::vector<std::pair<int, Id>> args);
  /// `user` copied to another layout where the layouts differ.
  Id as_input(Id user, const dnnl::memory::desc& wanted);
  void add_reorder(Id from, Id to);
  const dnnl::memory::desc& desc(Id id) const { return views_[id].desc; }
  void describe(const std::string& implementation) { description_ += implementation; }
  const std::string& description() const { return description_; }

  /// Bytes that a run needs.
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  /// Runs in order. `bases` are the addresses of the bound buffers, in the order of `bind`. Throws
  /// DeviceError.
  void run(std::span<std::byte* const> bases, std::byte* scratch, int slot);

 private:
  struct View {
    dnnl::memory::desc desc;
    bool bound = false;
    std::size_t offset = 0;  ///< bytes, from the buffer or the scratch memory
  };
  struct Step {
    dnnl::primitive primitive;
    std::vector<std::pair<int, Id>> args;
  };
  /// The memory objects of one thread: their addresses are set before each run.
  struct Objects {
    dnnl::stream stream;
    std::vector<dnnl::memory> memories;
    std::vector<std::unordered_map<int, dnnl::memory>> args;
  };
  Objects make_objects() const;

  dnnl::engine engine_;
  std::vector<View> views_;
  std::vector<Step> steps_;
  std::vector<std::unique_ptr<Objects>> slots_;  ///< made by the first run of each
  std::string description_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace tensorgrad::cpu
