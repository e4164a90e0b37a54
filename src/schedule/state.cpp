#include "schedule/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ops/rules.h"

namespace tensorgrad::schedule {

Location dense(int buffer, std::int64_t offset, const Shape& shape) {
  return {buffer, offset, strides_of(shape)};
}

bool is_dense(const Location& location, const Shape& shape) {
  if (numel(shape) == 0) return true;
  const Shape expected = strides_of(shape);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1 && location.strides[i] != expected[i]) return false;
  }
  return true;
}

const Node& storage_node(const Tensor& t) {
  const Node* n = &t.node();
  for (const auto* v = lowering_as<LowerView>(*n); v && v->keeps_order;
       v = lowering_as<LowerView>(*n)) {
    n = &n->operand(0).node();
  }
  return *n;
}

State::State(Graph g, int most_buffers)
    : graph(std::move(g)), max_buffers(most_buffers), order(graph.order()) {
  for (const Node* n : order) {
    std::unordered_set<const Node*> seen;
    for (const Tensor& o : n->operands) {
      if (seen.insert(&o.node()).second) users[&o.node()].push_back(n);
    }
  }
}

int State::add_buffer(PlanBuffer buffer) {
  buffers.push_back(std::move(buffer));
  return static_cast<int>(buffers.size()) - 1;
}

int State::add_temp(DType dtype, std::int64_t elements) {
  PlanBuffer b;
  b.kind = BufferKind::temp;
  b.dtype = dtype;
  b.elements = elements;
  return add_buffer(std::move(b));
}

int State::add_item(Item item) {
  const int id = static_cast<int>(items.size());
  writers[&item.value.node()].push_back(id);
  items.push_back(std::move(item));
  item_group.push_back(static_cast<int>(groups.size()));
  groups.push_back({{id}});
  return id;
}

bool State::is_copy(const Item& item) const {
  const auto own = locations.find(&item.value.node());
  return own != locations.end() &&
         (own->second.buffer != item.dest.buffer || own->second.offset != item.dest.offset);
}

std::vector<const Node*> State::reads(const Item& item) const {
  std::vector<const Node*> found;
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> pending;
  const Node& root = item.value.node();
  if (is_copy(item)) return {&root};
  for (const Tensor& o : root.operands) pending.push_back(&o.node());
  while (!pending.empty()) {
    const Node* n = pending.back();
    pending.pop_back();
    if (!seen.insert(n).second) continue;
    if (is_located(*n)) {
      found.push_back(n);
      continue;
    }
    for (const Tensor& o : n->operands) pending.push_back(&o.node());
  }
  return found;
}

void State::find_dependencies() {
  before.assign(items.size(), {});
  after.assign(items.size(), {});
  item_reads.clear();
  for (const Item& item : items) item_reads.push_back(reads(item));
  std::unordered_map<int, std::vector<int>>
      state_readers;  // buffer -> items that read the old value
  for (std::size_t i = 0; i < items.size(); ++i) {
    for (const Node* n : item_reads[i]) {
      const auto w = writers.find(n);
      if (w != writers.end()) {
        before[i].insert(w->second.begin(), w->second.end());
      } else if (const int b = locations.at(n).buffer;
                 buffers[static_cast<std::size_t>(b)].kind == BufferKind::state) {
        state_readers[b].push_back(static_cast<int>(i));
      }
    }
    before[i].erase(static_cast<int>(i));
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto r = state_readers.find(items[i].dest.buffer);
    if (r == state_readers.end()) continue;
    for (int reader : r->second) {
      if (reader != static_cast<int>(i)) before[i].insert(reader);
    }
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    for (int b : before[i]) after[static_cast<std::size_t>(b)].push_back(static_cast<int>(i));
  }
}

bool State::depends(int group, int on) const {
  for (int i : groups[static_cast<std::size_t>(group)].items) {
    for (int b : before[static_cast<std::size_t>(i)]) {
      if (item_group[static_cast<std::size_t>(b)] == on) return true;
    }
  }
  return false;
}

bool State::path_through_others(int from, int to) const {
  // Backwards from `to`, not through a direct edge to `from`.
  std::vector<int> pending;
  std::unordered_set<int> seen;
  const auto push = [&](int group, bool direct) {
    for (int i : groups[static_cast<std::size_t>(group)].items) {
      for (int b : before[static_cast<std::size_t>(i)]) {
        const int g = item_group[static_cast<std::size_t>(b)];
        if (g == group || (direct && g == from)) continue;
        if (seen.insert(g).second) pending.push_back(g);
      }
    }
  };
  push(to, true);
  while (!pending.empty()) {
    const int g = pending.back();
    pending.pop_back();
    if (g == from) return true;
    push(g, false);
  }
  return false;
}

// The temporaries that groups touch, and what running a group next does to the bytes in use.
class State::Usage {
 public:
  explicit Usage(const State& s) : s_(s), touched_(s.groups.size()), left_(s.buffers.size(), 0) {
    for (std::size_t g = 0; g < s.groups.size(); ++g) {
      for (int i : s.groups[g].items) {
        touch(g, s.items[static_cast<std::size_t>(i)].dest.buffer);
        for (const Node* n : s.item_reads[static_cast<std::size_t>(i)]) {
          touch(g, s.locations.at(n).buffer);
        }
      }
      for (int b : touched_[g]) ++left_[static_cast<std::size_t>(b)];
    }
    groups_of_ = left_;
    // What many groups write, parts of a concatenation, is alive for long whatever the order is.
    constexpr int many = 4;
    std::vector<int> writes(s.buffers.size(), 0);
    for (const Item& item : s.items) ++writes[static_cast<std::size_t>(item.dest.buffer)];
    for (std::size_t b = 0; b < writes.size(); ++b) gathers_.push_back(writes[b] >= many);
  }

  /// Bytes that become used less those that become free.
  std::int64_t growth(int g) const {
    std::int64_t bytes = 0;
    for (int id : touched_[static_cast<std::size_t>(g)]) {
      const auto b = static_cast<std::size_t>(id);
      if (left_[b] == groups_of_[b] && !gathers_[b]) bytes += s_.buffers[b].bytes();
      if (left_[b] == 1) bytes -= s_.buffers[b].bytes();
    }
    return bytes;
  }
  void run(int g) {
    for (int b : touched_[static_cast<std::size_t>(g)]) --left_[static_cast<std::size_t>(b)];
  }

 private:
  void touch(std::size_t g, int buffer) {
    const PlanBuffer& b = s_.buffers[static_cast<std::size_t>(buffer)];
    auto& list = touched_[g];
    if (b.kind != BufferKind::temp || std::find(list.begin(), list.end(), buffer) != list.end()) {
      return;
    }
    list.push_back(buffer);
  }

  const State& s_;
  std::vector<std::vector<int>> touched_;
  std::vector<int> left_, groups_of_;
  std::vector<bool> gathers_;
};

std::vector<int> State::group_order() const {
  std::vector<int> waiting(groups.size(), 0);
  std::vector<std::unordered_set<int>> following(groups.size());
  std::set<std::pair<int, int>> ready;  // by the place in the program
  const auto priority = [&](int g) {
    const auto& list = groups[static_cast<std::size_t>(g)].items;
    return *std::max_element(list.begin(), list.end());
  };
  std::size_t count = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].items.empty()) continue;
    ++count;
    std::unordered_set<int> sources;
    for (int i : groups[g].items) {
      for (int b : before[static_cast<std::size_t>(i)]) {
        const int s = item_group[static_cast<std::size_t>(b)];
        if (s != static_cast<int>(g)) sources.insert(s);
      }
    }
    waiting[g] = static_cast<int>(sources.size());
    for (int s : sources) following[static_cast<std::size_t>(s)].insert(static_cast<int>(g));
    if (sources.empty()) ready.emplace(priority(static_cast<int>(g)), static_cast<int>(g));
  }
  Usage usage(*this);
  std::vector<int> out;
  while (!ready.empty()) {
    // What frees most goes first, then what takes nothing, then what comes first in the program.
    auto next = ready.begin();
    std::int64_t best = 1;
    for (auto it = ready.begin(); it != ready.end(); ++it) {
      const std::int64_t growth = usage.growth(it->second);
      if (growth < best) {
        best = growth;
        next = it;
      }
    }
    const int g = next->second;
    ready.erase(next);
    usage.run(g);
    out.push_back(g);
    for (int a : following[static_cast<std::size_t>(g)]) {
      if (--waiting[static_cast<std::size_t>(a)] == 0) ready.emplace(priority(a), a);
    }
  }
  if (out.size() != count) {
    throw GraphError(fmt::format("schedule: {} of {} kernels depend on each other in a circle.",
                                 count - out.size(), count));
  }
  return out;
}

}  // namespace tensorgrad::schedule
