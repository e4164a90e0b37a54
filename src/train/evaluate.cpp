#include "train/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <unordered_map>
#include <unordered_set>

#include "ops/primitives.h"
#include "runtime/mutex.h"
#include "tensorgrad/jit.h"
#include "tensorgrad/tensor.h"
#include "train/values.h"
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

// The most nodes that are compiled as one program.
constexpr std::size_t part_limit = 2000;

class Evaluation {
 public:
  explicit Evaluation(Engine* engine) : engine_(engine) {}

  std::vector<HostValue> run(std::span<const Tensor> tensors) {
    // Nodes that must be computed, operands first.
    std::vector<const Node*> order;
    for (const Node* n : to_compute(tensors)) {
      if (!values_.contains(n)) order.push_back(n);
    }
    last_use_ = {};
    std::unordered_map<const Node*, std::size_t> position;
    for (std::size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const Tensor& o : order[i]->operands) last_use_[&o.node()] = i;
    }
    for (const Tensor& t : tensors) last_use_[&t.node()] = order.size();

    for (std::size_t from = 0; from < order.size(); from += part_limit) {
      const std::size_t to = std::min(from + part_limit, order.size());
      std::vector<Tensor> wanted;
      for (std::size_t i = from; i < to; ++i) {
        const auto use = last_use_.find(order[i]);
        // Numbers are made where they are used.
        if (use != last_use_.end() && use->second >= to &&
            (!is_free(*order[i]) || use->second == order.size())) {
          wanted.push_back(handle_of(*order[i]));
        }
      }
      run_part(wanted);
      std::erase_if(values_, [&](const auto& v) {
        const auto use = last_use_.find(v.first);
        return use == last_use_.end() || use->second < to;
      });
    }
    std::vector<HostValue> out;
    for (const Tensor& t : tensors) {
      out.push_back(values_.at(&t.node()));
      if (!engine_) known_values().remember(t, out.back());
    }
    return out;
  }

 private:
  static bool is_free(const Node& n) { return lowering_as<LowerGenerate>(n) != nullptr; }

  // As `topological`, but not beyond values that are known, which are noted.
  std::vector<const Node*> to_compute(std::span<const Tensor> roots) {
    struct Frame {
      const Node* node;
      std::size_t next;
    };
    std::vector<const Node*> order;
    std::unordered_set<const Node*> done;
    std::vector<Frame> stack;
    const auto enter = [&](const Node* n) {
      if (!done.insert(n).second) return;
      stack.push_back({n, 0});
      HostValue known = engine_ && !std::holds_alternative<DataAttr>(n->attrs)
                            ? nullptr
                            : known_values().find(*n);
      if (!known) return;
      values_[n] = std::move(known);
      stack.back().next = n->operands.size();
    };
    for (const Tensor& root : roots) {
      enter(&root.node());
      while (!stack.empty()) {
        Frame& f = stack.back();
        if (f.next == f.node->operands.size()) {
          order.push_back(f.node);
          stack.pop_back();
        } else {
          enter(&f.node->operands[f.next++].node());
        }
      }
    }
    return order;
  }

  // Computes `wanted` from the values that are there.
  void run_part(const std::vector<Tensor>& wanted) {
    if (wanted.empty()) return;
    Graph graph;
    std::vector<HostValue> fed;
    std::unordered_map<const Node*, Tensor> map;
    std::vector<Tensor> stops;
    for (const auto& [n, value] : values_) stops.push_back(handle_of(*n));
    for (const Node* n : topological(wanted, stops)) {
      // Known values become inputs, so that equal programs on other values are found in the cache.
      if (const auto known = values_.find(n); known != values_.end()) {
        fed.push_back(known->second);
        map[n] =
            prim::input(InputRole::input, fmt::format("value{}", fed.size()), n->type, n->site);
        graph.inputs.push_back(map[n]);
        continue;
      }
      if (const auto* in = std::get_if<InputAttr>(&n->attrs)) {
        throw GraphError(fmt::format("`{}` is a placeholder: its value is known only while a "
                                     "compiled program runs.",
                                     in->name),
                         n->site);
      }
      std::vector<Tensor> operands;
      for (const Tensor& o : n->operands) operands.push_back(map.at(&o.node()));
      map[n] = n->operands.empty() ? handle_of(*n) : remake(*n, std::move(operands));
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      graph.outputs.push_back({fmt::format("{}", i), map.at(&wanted[i].node())});
    }
    graph = bind_context(graph, false, {});
    const std::shared_ptr<Program> program =
        engine_ ? std::shared_ptr<Program>(engine_->load(graph, nullptr)) : cached_program(graph);
    std::vector<std::span<const std::byte>> feeds;
    for (const HostValue& v : fed) feeds.emplace_back(v->bytes);
    const auto done = program->run(feeds, {});
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto bytes = done->output(i);
      values_[&wanted[i].node()] = std::make_shared<const HostData>(
          HostData{std::vector<std::byte>(bytes.begin(), bytes.end())});
    }
  }

  Engine* engine_;
  std::unordered_map<const Node*, HostValue> values_;
  std::unordered_map<const Node*, std::size_t> last_use_;
};

}  // namespace

std::shared_ptr<Program> cached_program(const Graph& graph) {
  const auto shared = default_engine();
  return cache().find(graph, *shared);
}

std::vector<HostValue> evaluate(std::span<const Tensor> tensors, Engine* engine) {
  return Evaluation(engine).run(tensors);
}

template <class T>
std::vector<T> Tensor::to_vector(Site site) const {
  const SiteScope scope(site);
  check_type<T>(*this, site);
  const HostValue value = evaluate(std::span(this, 1))[0];
  const std::vector<std::byte>& bytes = value->bytes;
  std::vector<T> out(bytes.size() / info(dtype()).bytes);
  if constexpr (std::is_same_v<T, bool>) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = bytes[i] != std::byte{0};
  } else {
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  }
  return out;
}

std::vector<Tensor> detail::materialise(std::span<const Tensor> tensors, const Site& site) {
  const SiteScope scope(site);
  const std::vector<HostValue> values = evaluate(tensors);
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    out.push_back(prim::data(tensors[i].node().type, values[i], site));
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
template std::vector<Half> Tensor::to_vector<Half>(Site) const;
template std::vector<std::uint8_t> Tensor::to_vector<std::uint8_t>(Site) const;
template std::vector<bool> Tensor::to_vector<bool>(Site) const;
template float Tensor::item<float>(Site) const;
template std::int32_t Tensor::item<std::int32_t>(Site) const;
template std::uint32_t Tensor::item<std::uint32_t>(Site) const;
template Half Tensor::item<Half>(Site) const;
template std::uint8_t Tensor::item<std::uint8_t>(Site) const;
template bool Tensor::item<bool>(Site) const;

}  // namespace tensorgrad
