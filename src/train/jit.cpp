// Functions compiled once and called often.
#include "tensorgrad/jit.h"

#include <fmt/format.h>

#include <list>
#include <unordered_map>
#include <unordered_set>

#include "ops/primitives.h"
#include "runtime/mutex.h"
#include "train/evaluate.h"
#include "train/values.h"
#include "transform/passes.h"

namespace tensorgrad::detail {
namespace {

// Whether a value can be computed now, as far as the node itself decides, and no transform may
// differentiate by it.
bool is_open(const Node& n) {
  return *n.op->name == "identity" ||
         (lowering_as<LowerLeaf>(n) != nullptr && !std::holds_alternative<DataAttr>(n.attrs));
}

}  // namespace

struct JitEntry {
  std::vector<Tensor> placeholders, outputs;
  std::any result;
  bool open = false;  // whether the function captures what is not known yet
  Mutex mutex;
  std::shared_ptr<Program> program;  // made at the first call on values
  std::vector<HostValue> captured;   // what the program reads beside the arguments
};

void Signature::add_type(const Tensor& t) { text_ += to_string(t.node().type); }
void Signature::add_number(double v) { text_ += fmt::format("{}", v); }

struct JitCache::Entries {
  Mutex mutex;
  std::list<std::pair<std::string, std::shared_ptr<JitEntry>>> list;  // last used first
};

JitCache::JitCache() : entries_(std::make_unique<Entries>()) {}
JitCache::~JitCache() = default;

std::shared_ptr<JitEntry> JitCache::find(const std::string& signature) {
  const Lock lock(entries_->mutex);
  auto& list = entries_->list;
  for (auto it = list.begin(); it != list.end(); ++it) {
    if (it->first != signature) continue;
    list.splice(list.begin(), list, it);
    return list.front().second;
  }
  return nullptr;
}

void JitCache::add(const std::string& signature, std::shared_ptr<JitEntry> entry) {
  constexpr std::size_t capacity = 32;
  const Lock lock(entries_->mutex);
  entries_->list.emplace_front(signature, std::move(entry));
  if (entries_->list.size() > capacity) entries_->list.pop_back();
}

std::size_t JitCache::size() const {
  const Lock lock(entries_->mutex);
  return entries_->list.size();
}

std::vector<Tensor> jit_placeholders(std::span<const Tensor> arguments, const Site& site) {
  std::vector<Tensor> out;
  for (const Tensor& t : arguments) {
    out.push_back(prim::input(InputRole::argument, "argument", t.node().type, site));
  }
  return out;
}

std::shared_ptr<JitEntry> jit_entry(std::vector<Tensor> placeholders, std::vector<Tensor> outputs,
                                    std::any result) {
  auto entry = std::make_shared<JitEntry>();
  std::unordered_set<const Node*> inside;
  for (const Tensor& t : placeholders) inside.insert(&t.node());
  for (const Node* n : topological(outputs, placeholders)) {
    if (inside.contains(n)) continue;
    bool depends = false;
    for (const Tensor& o : n->operands) depends = depends || inside.contains(&o.node());
    if (depends) {
      inside.insert(n);
    } else {
      entry->open = entry->open || is_open(*n);
    }
  }
  entry->placeholders = std::move(placeholders);
  entry->outputs = std::move(outputs);
  entry->result = std::move(result);
  return entry;
}

const std::any& jit_result(const JitEntry& entry) { return entry.result; }

namespace {

// The function's nodes on other arguments.
std::vector<Tensor> inlined(const JitEntry& entry, std::span<const Tensor> arguments) {
  std::unordered_map<const Node*, Tensor> map;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    map[&entry.placeholders[i].node()] = arguments[i];
  }
  for (const Node* n : topological(entry.outputs, entry.placeholders)) {
    if (map.contains(n)) continue;
    std::vector<Tensor> operands;
    bool changed = false;
    for (const Tensor& o : n->operands) {
      operands.push_back(map.at(&o.node()));
      changed = changed || operands.back().handle() != o.handle();
    }
    map[n] = changed ? remake(*n, std::move(operands)) : handle_of(*n);
  }
  std::vector<Tensor> out;
  for (const Tensor& y : entry.outputs) out.push_back(map.at(&y.node()));
  return out;
}

bool all_closed(std::span<const Tensor> arguments) {
  std::vector<Tensor> known;
  std::vector<Tensor> unknown;
  for (const Tensor& t : arguments) {
    if (!known_values().find(t.node())) unknown.push_back(t);
  }
  if (unknown.empty()) return true;
  for (const Node* n : topological(unknown)) {
    if (is_open(*n)) return false;
  }
  return true;
}

void compile(JitEntry& entry) {
  Graph graph;
  for (std::size_t i = 0; i < entry.outputs.size(); ++i) {
    graph.outputs.push_back({fmt::format("{}", i), entry.outputs[i]});
  }
  // Literal arrays stay out of the program's text: it may be shared.
  std::vector<Tensor> inputs = entry.placeholders;
  std::vector<HostValue> captured;
  graph = rebuild(graph, [&](const Node& n, std::vector<Tensor> operands) -> Tensor {
    if (const auto* d = std::get_if<DataAttr>(&n.attrs)) {
      captured.push_back(d->data);
      inputs.push_back(prim::input(InputRole::input, fmt::format("captured{}", captured.size()),
                                   n.type, n.site));
      return inputs.back();
    }
    return n.operands.empty() ? handle_of(n) : remake(n, std::move(operands));
  });
  graph = bind_context(graph, false, {});
  graph.inputs = std::move(inputs);
  entry.program = default_engine()->load(graph, nullptr);
  entry.captured = std::move(captured);
}

}  // namespace

std::vector<Tensor> jit_call(JitEntry& entry, std::span<const Tensor> arguments, const Site& site) {
  if (entry.open || !all_closed(arguments)) return inlined(entry, arguments);
  std::vector<HostValue> values = evaluate(arguments);
  const Lock lock(entry.mutex);
  if (!entry.program) compile(entry);
  values.insert(values.end(), entry.captured.begin(), entry.captured.end());
  std::vector<std::span<const std::byte>> feeds;
  for (const HostValue& v : values) feeds.emplace_back(v->bytes);
  const auto done = entry.program->run(feeds, {});
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < entry.outputs.size(); ++i) {
    const auto bytes = done->output(i);
    out.push_back(prim::data(entry.outputs[i].node().type,
                             std::vector<std::byte>(bytes.begin(), bytes.end()), site));
  }
  return out;
}

}  // namespace tensorgrad::detail
