#include "train/evaluate.h"

#include <fmt/format.h>

#include <cstring>
#include <list>

#include "ops/primitives.h"
#include "runtime/mutex.h"
#include "tensorgrad/tensor.h"
#include "transform/passes.h"

namespace tensorgrad {
namespace {

// The programs of the graphs that were read last, most recent first.
class ProgramCache {
 public:
  std::shared_ptr<Program> find(const Graph& graph, Engine& engine) {
    const std::size_t key = structural_hash(graph);
    const Lock lock(mutex_);
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->key == key && same_structure(it->graph, graph)) {
        entries_.splice(entries_.begin(), entries_, it);
        return it->program;
      }
    }
    std::shared_ptr<Program> program = engine.load(graph, nullptr);
    entries_.push_front({key, graph, program});
    if (entries_.size() > capacity) entries_.pop_back();
    return program;
  }

 private:
  static constexpr std::size_t capacity = 64;
  struct Entry {
    std::size_t key;
    Graph graph;
    std::shared_ptr<Program> program;
  };
  Mutex mutex_;
  std::list<Entry> entries_;
};

ProgramCache& cache() {
  static ProgramCache programs;
  return programs;
}

template <class T>
void check_type(const Tensor& t, const Site& site) {
  if (t.dtype() != dtype_of<T>::value) {
    throw DTypeError(fmt::format("to_vector: the tensor is {}, not {}.", name(t.dtype()),
                                 name(dtype_of<T>::value)),
                     site);
  }
}

}  // namespace

std::vector<std::vector<std::byte>> evaluate(std::span<const Tensor> tensors, Engine* engine) {
  Graph graph;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    graph.outputs.push_back({fmt::format("{}", i), tensors[i]});
  }
  graph = bind_context(graph, false, {});
  // Literal arrays become inputs, so that equal programs on other values are found in the cache.
  std::vector<Tensor> placeholders;
  std::vector<std::shared_ptr<const HostData>> values;
  graph = rebuild(graph, [&](const Node& n, std::vector<Tensor> operands) -> Tensor {
    if (const auto* d = std::get_if<DataAttr>(&n.attrs)) {
      values.push_back(d->data);
      placeholders.push_back(
          prim::input(InputRole::input, fmt::format("literal{}", values.size()), n.type, n.site));
      return placeholders.back();
    }
    if (const auto* in = std::get_if<InputAttr>(&n.attrs)) {
      throw GraphError(fmt::format("`{}` is a placeholder: its value is known only while a "
                                   "compiled program runs.",
                                   in->name),
                       n.site);
    }
    return n.operands.empty() ? handle_of(n) : remake(n, std::move(operands));
  });
  graph.inputs = std::move(placeholders);

  std::shared_ptr<Program> program;
  if (engine) {
    program = engine->load(graph, nullptr);
  } else {
    const auto shared = default_engine();
    program = cache().find(graph, *shared);
  }
  std::vector<std::span<const std::byte>> feeds;
  for (const auto& v : values) feeds.emplace_back(v->bytes);
  const auto done = program->run(feeds, {});
  std::vector<std::vector<std::byte>> out;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto bytes = done->output(i);
    out.emplace_back(bytes.begin(), bytes.end());
  }
  return out;
}

template <class T>
std::vector<T> Tensor::to_vector(Site site) const {
  const SiteScope scope(site);
  check_type<T>(*this, site);
  const std::vector<std::byte> bytes = evaluate(std::span(this, 1))[0];
  std::vector<T> out(bytes.size() / info(dtype()).bytes);
  if constexpr (std::is_same_v<T, bool>) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = bytes[i] != std::byte{0};
  } else {
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  }
  return out;
}

template <class T>
T Tensor::item(Site site) const {
  if (size() != 1) {
    throw ShapeError(
        fmt::format("item: shape {} has {} elements, not one.", to_string(shape()), size()), site);
  }
  return to_vector<T>(site)[0];
}

template std::vector<float> Tensor::to_vector<float>(Site) const;
template std::vector<std::int32_t> Tensor::to_vector<std::int32_t>(Site) const;
template std::vector<std::uint32_t> Tensor::to_vector<std::uint32_t>(Site) const;
template std::vector<std::uint8_t> Tensor::to_vector<std::uint8_t>(Site) const;
template std::vector<bool> Tensor::to_vector<bool>(Site) const;
template float Tensor::item<float>(Site) const;
template std::int32_t Tensor::item<std::int32_t>(Site) const;
template std::uint32_t Tensor::item<std::uint32_t>(Site) const;
template std::uint8_t Tensor::item<std::uint8_t>(Site) const;
template bool Tensor::item<bool>(Site) const;

}  // namespace tensorgrad
