#include "runtime/reference/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "ops/registry.h"
#include "runtime/reference/interpreter.h"

namespace tensorgrad {
namespace {

template <class F>
void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::bool_:
      f(std::uint8_t{});
      return;
    case DType::i32:
      f(std::int32_t{});
      return;
    case DType::u32:
      f(std::uint32_t{});
      return;
    case DType::f32:
      f(float{});
      return;
    case DType::f16:
      f(Half{});
      return;
  }
}

std::vector<double> to_doubles(DType dtype, std::span<const std::byte> bytes) {
  std::vector<double> out(bytes.size() / info(dtype).bytes);
  with_type(dtype, [&](auto v) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::memcpy(&v, &bytes[i * sizeof v], sizeof v);
      out[i] = static_cast<double>(v);
    }
  });
  return out;
}

void to_bytes(DType dtype, std::span<const double> values, std::span<std::byte> bytes) {
  with_type(dtype, [&](auto v) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      v = static_cast<decltype(v)>(values[i]);
      std::memcpy(&bytes[i * sizeof v], &v, sizeof v);
    }
  });
}

// State that keeps double precision between steps; read and written as its dtype.
class ReferenceBuffer : public DeviceBuffer {
 public:
  ReferenceBuffer(DType dtype, std::int64_t elements)
      : dtype_(dtype), values_(static_cast<std::size_t>(elements), 0.0) {}
  std::size_t bytes() const override { return values_.size() * info(dtype_).bytes; }
  void write(std::size_t offset, std::span<const std::byte> data) override {
    check(offset, data.size());
    const std::vector<double> v = to_doubles(dtype_, data);
    std::copy(v.begin(), v.end(),
              values_.begin() + static_cast<std::ptrdiff_t>(offset / info(dtype_).bytes));
  }
  void read(std::size_t offset, std::span<std::byte> data) const override {
    check(offset, data.size());
    const std::size_t size = info(dtype_).bytes;
    to_bytes(dtype_, std::span(values_).subspan(offset / size, data.size() / size), data);
  }
  std::vector<double>& values() { return values_; }

 private:
  void check(std::size_t offset, std::size_t size) const {
    if (offset > bytes() || size > bytes() - offset) {
      throw ValueError(
          fmt::format("A buffer of {} bytes has no {} bytes at {}.", bytes(), size, offset));
    }
  }
  DType dtype_;
  std::vector<double> values_;
};

class ReferenceCompletion : public Completion {
 public:
  explicit ReferenceCompletion(std::vector<std::vector<std::byte>> outputs)
      : outputs_(std::move(outputs)) {}
  std::span<const std::byte> output(std::size_t i) override { return outputs_.at(i); }

 private:
  std::vector<std::vector<std::byte>> outputs_;
};

class ReferenceProgram : public Program {
 public:
  explicit ReferenceProgram(Graph graph) : graph_(std::move(graph)) { verify(graph_); }

  std::unique_ptr<Completion> run(std::span<const std::span<const std::byte>> inputs,
                                  std::span<DeviceBuffer* const> states) override {
    const std::vector<Tensor> roots = graph_.roots();
    std::unordered_map<const Node*, RefArray> leaves;
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const Type& type = graph_.inputs[i].node().type;
      leaves[&graph_.inputs[i].node()] = {type, to_doubles(type.dtype, inputs[i])};
    }
    for (std::size_t i = 0; i < graph_.states.size(); ++i) {
      leaves[&graph_.states[i].node()] = {graph_.states[i].node().type, state(states, i).values()};
    }
    std::vector<RefArray> values =
        interpret(roots, [&](const Node& leaf) { return leaves.at(&leaf); });
    std::vector<std::vector<std::byte>> outputs;
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const DType dtype = values[i].type.dtype;
      outputs.emplace_back(values[i].data.size() * info(dtype).bytes);
      to_bytes(dtype, values[i].data, outputs.back());
    }
    std::size_t next = graph_.outputs.size();
    for (std::size_t i = 0; i < graph_.updates.size(); ++i) {
      if (graph_.updates[i].defined()) state(states, i).values() = std::move(values[next++].data);
    }
    return std::make_unique<ReferenceCompletion>(std::move(outputs));
  }

 private:
  static ReferenceBuffer& state(std::span<DeviceBuffer* const> states, std::size_t i) {
    return dynamic_cast<ReferenceBuffer&>(*states[i]);
  }
  Graph graph_;
};

class ReferenceEngine : public Engine {
 public:
  std::string name() const override { return "reference"; }
  std::unique_ptr<DeviceBuffer> allocate(DType dtype, std::int64_t elements) override {
    return std::make_unique<ReferenceBuffer>(dtype, elements);
  }
  std::unique_ptr<Program> load(const Graph& graph, std::vector<PassReport>*) override {
    return std::make_unique<ReferenceProgram>(graph);
  }
};

}  // namespace

std::shared_ptr<Engine> make_reference_engine() { return std::make_shared<ReferenceEngine>(); }

}  // namespace tensorgrad
