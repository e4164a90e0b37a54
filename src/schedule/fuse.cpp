// Which stores share a kernel.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "graph/order.h"
#include "ops/rules.h"
#include "schedule/state.h"

namespace tensorgrad::schedule {
namespace {

// A row up to this many elements stays in the cache between the stages of one kernel.
constexpr std::int64_t row_limit = 1 << 16;
// Buffers of one kernel, whatever the device takes: beyond this fusion saves nothing.
constexpr int argument_limit = 24;

const Item& item(const State& s, int i) { return s.items[static_cast<std::size_t>(i)]; }
std::vector<int>& items(State& s, int g) { return s.groups[static_cast<std::size_t>(g)].items; }
const std::vector<int>& items(const State& s, int g) {
  return s.groups[static_cast<std::size_t>(g)].items;
}

bool all(const State& s, int g, ItemKind kind) {
  return std::all_of(items(s, g).begin(), items(s, g).end(),
                     [&](int i) { return item(s, i).kind == kind; });
}
bool has(const State& s, int g, ItemKind kind) {
  return std::any_of(items(s, g).begin(), items(s, g).end(),
                     [&](int i) { return item(s, i).kind == kind; });
}

// Items of both groups, in dependency order.
std::vector<int> joined(const State& s, int a, int b) {
  std::vector<int> list = items(s, a);
  list.insert(list.end(), items(s, b).begin(), items(s, b).end());
  sort_values(list);
  sort_values(list, [&](int x, int y) {
    return item(s, x).kind == ItemKind::contract && item(s, y).kind != ItemKind::contract;
  });
  return list;
}

// Merges groups that fit one kernel. Pairs that did not fit are not lowered again.
class Merging {
 public:
  explicit Merging(State& s) : s_(s) {}

  bool operator()(int a, int b) {
    std::vector<int> list = joined(s_, a, b);
    // What has no elements has no rows that others could share.
    if (std::any_of(list.begin(), list.end(),
                    [&](int i) { return item(s_, i).value.size() == 0; })) {
      return false;
    }
    if (unfit_.contains(list) || s_.path_through_others(a, b) || s_.path_through_others(b, a)) {
      return false;
    }
    const Lowered l = lower(s_, list);
    const auto most = static_cast<std::size_t>(std::min(argument_limit, s_.max_buffers));
    if (!l.failure.empty() || l.buffers.size() > most) {
      unfit_.insert(std::move(list));
      return false;
    }
    for (int i : items(s_, b)) s_.item_group[static_cast<std::size_t>(i)] = a;
    items(s_, b).clear();
    items(s_, a) = std::move(list);
    return true;
  }

 private:
  State& s_;
  std::set<std::vector<int>> unfit_;
};

// Whether a reduction walks consecutive elements, few enough to stay in the cache.
bool is_row(const Item& it) {
  const Node& n = it.value.node();
  const Shape& from = n.operand(0).shape();
  const auto& axes = n.attr<AxesAttr>().axes;
  std::int64_t length = 1;
  bool kept_behind = false;
  for (std::size_t d = from.size(); d-- > 0;) {
    if (from[d] == 1) continue;
    if (!std::binary_search(axes.begin(), axes.end(), static_cast<int>(d))) {
      kept_behind = true;
    } else if (kept_behind) {
      return false;
    } else {
      length *= from[d];
    }
  }
  return length <= row_limit;
}

// Groups of maps and reductions whose union may be a row kernel.
bool rows_allowed(const State& s, int a, int b) {
  bool reduces = false;
  bool rows = true;
  std::int64_t row_count = -1;
  for (int g : {a, b}) {
    for (int i : items(s, g)) {
      const Item& it = item(s, i);
      if (it.kind != ItemKind::map && it.kind != ItemKind::reduce) return false;
      if (it.kind == ItemKind::reduce) {
        reduces = true;
        rows = rows && is_row(it);
        row_count = it.value.size();
      }
    }
  }
  if (!reduces) return false;
  if (rows) return true;
  // Long or strided reductions take only what is computed once a result.
  for (int g : {a, b}) {
    for (int i : items(s, g)) {
      if (item(s, i).kind == ItemKind::map && item(s, i).value.size() != row_count) return false;
    }
  }
  return true;
}

// Groups of scans and of maps over the same elements, whose union may be one pass.
bool scans_allowed(const State& s, int a, int b) {
  if (!has(s, a, ItemKind::scan) && !has(s, b, ItemKind::scan)) return false;
  const Shape& shape = item(s, items(s, a)[0]).value.shape();
  for (int g : {a, b}) {
    for (int i : items(s, g)) {
      const Item& it = item(s, i);
      if (it.kind != ItemKind::map && it.kind != ItemKind::scan) return false;
      if (it.value.shape() != shape) return false;
    }
  }
  return true;
}

std::vector<int> consumers(const State& s, int g) {
  std::set<int> out;
  for (int i : items(s, g)) {
    for (int a : s.after[static_cast<std::size_t>(i)]) {
      const int group = s.item_group[static_cast<std::size_t>(a)];
      if (group != g) out.insert(group);
    }
  }
  return {out.begin(), out.end()};
}

bool share_a_read(const State& s, int a, int b) {
  std::unordered_set<const Node*> read;
  for (int i : items(s, a)) {
    const auto& list = s.item_reads[static_cast<std::size_t>(i)];
    read.insert(list.begin(), list.end());
  }
  for (int i : items(s, b)) {
    for (const Node* n : s.item_reads[static_cast<std::size_t>(i)]) {
      if (numel(n->type.shape) > 1 && read.contains(n)) return true;
    }
  }
  return false;
}

Shape squeezed(const Shape& shape) {
  Shape out;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(out),
               [](std::int64_t e) { return e != 1; });
  return out;
}

// What a reduction runs over for each of its results, or nothing for a map; extents of 1 apart.
Shape reduced_extents(const Item& it) {
  if (it.kind != ItemKind::reduce) return {};
  const Node& n = it.value.node();
  Shape out;
  for (int a : n.attr<AxesAttr>().axes) {
    out.push_back(n.operand(0).shape()[static_cast<std::size_t>(a)]);
  }
  return squeezed(out);
}

// The first reduction of a group of maps and reductions; -1 if there is none.
int first_reduction(const State& s, int g) {
  for (int i : items(s, g)) {
    if (item(s, i).kind == ItemKind::reduce) return i;
  }
  return -1;
}

// Groups that walk the same rows: their values of a row are computed together.
bool share_rows(const State& s, int a, int b) {
  const int x = first_reduction(s, a);
  const int y = first_reduction(s, b);
  return x >= 0 && y >= 0 && rows_allowed(s, a, b) &&
         squeezed(item(s, x).value.shape()) == squeezed(item(s, y).value.shape()) &&
         reduced_extents(item(s, x)) == reduced_extents(item(s, y));
}

}  // namespace

void fuse_attention(State& s) {
  Merging try_merge(s);
  // Groups by operands: results that are computed from the same ones.
  std::map<std::vector<const Node*>, int> first;
  for (std::size_t g = 0; g < s.groups.size(); ++g) {
    const int group = static_cast<int>(g);
    if (items(s, group).empty() || !all(s, group, ItemKind::attention)) continue;
    const Node& n = item(s, items(s, group)[0]).value.node();
    std::vector<const Node*> key;
    for (const Tensor& o : n.operands) key.push_back(&o.node());
    const auto [at, inserted] = first.try_emplace(std::move(key), group);
    if (inserted) continue;
    const Node& other = item(s, items(s, at->second)[0]).value.node();
    if (other.attrs == n.attrs) try_merge(at->second, group);
  }
}

void fuse_epilogues(State& s) {
  Merging try_merge(s);
  for (std::size_t g = 0; g < s.groups.size(); ++g) {
    const int p = static_cast<int>(g);
    if (items(s, p).empty() || !has(s, p, ItemKind::contract)) continue;
    const std::int64_t size = item(s, items(s, p)[0]).value.size();
    for (int c : consumers(s, p)) {
      const bool fits = all(s, c, ItemKind::map) &&
                        std::all_of(items(s, c).begin(), items(s, c).end(),
                                    [&](int i) { return item(s, i).value.size() == size; });
      if (fits) try_merge(p, c);
    }
  }
}

void fuse_rows(State& s) {
  Merging try_merge(s);
  bool again = true;
  while (again) {
    again = false;
    for (std::size_t g = 0; g < s.groups.size(); ++g) {
      const int p = static_cast<int>(g);
      if (items(s, p).empty()) continue;
      for (int c : consumers(s, p)) {
        const bool allowed = rows_allowed(s, p, c) || scans_allowed(s, p, c);
        if (allowed && try_merge(p, c)) again = true;
      }
    }
  }
}

void fuse_siblings(State& s) {
  Merging try_merge(s);
  for (std::size_t a = 0; a < s.groups.size(); ++a) {
    const int ga = static_cast<int>(a);
    for (std::size_t b = a + 1; b < s.groups.size(); ++b) {
      const int gb = static_cast<int>(b);
      if (items(s, ga).empty() || items(s, gb).empty()) continue;
      const bool maps = all(s, ga, ItemKind::map) && all(s, gb, ItemKind::map);
      const bool reduces = all(s, ga, ItemKind::reduce) && all(s, gb, ItemKind::reduce);
      const bool scans = has(s, ga, ItemKind::scan) && has(s, gb, ItemKind::scan);
      const bool sorts = all(s, ga, ItemKind::sort) && all(s, gb, ItemKind::sort);
      if (!maps && !reduces && !scans && !sorts) {
        if (share_rows(s, ga, gb) && share_a_read(s, ga, gb)) try_merge(ga, gb);
        continue;
      }
      const Item& x = item(s, items(s, ga)[0]);
      const Item& y = item(s, items(s, gb)[0]);
      if (reduced_extents(x) != reduced_extents(y) ||
          squeezed(x.value.shape()) != squeezed(y.value.shape())) {
        continue;
      }
      if ((scans || sorts) && x.value.shape() != y.value.shape()) continue;
      if (scans && !scans_allowed(s, ga, gb)) continue;
      if (reduces && (s.depends(ga, gb) || s.depends(gb, ga))) continue;
      if (share_a_read(s, ga, gb) || s.depends(ga, gb) || s.depends(gb, ga)) try_merge(ga, gb);
    }
  }
}

void drop_stores(State& s) {
  std::unordered_map<const Node*, std::unordered_set<int>> readers;  // groups
  for (std::size_t i = 0; i < s.items.size(); ++i) {
    for (const Node* n : s.item_reads[i]) readers[n].insert(s.item_group[i]);
  }
  std::unordered_map<int, const Node*> whole;  // an item that is a part of a stored concatenation
  for (const auto& [n, list] : s.writers) {
    for (int i : list) {
      if (&s.items[static_cast<std::size_t>(i)].value.node() != n) whole[i] = n;
    }
  }
  for (std::size_t i = 0; i < s.items.size(); ++i) {
    Item& it = s.items[i];
    const BufferKind kind = s.buffers[static_cast<std::size_t>(it.dest.buffer)].kind;
    if (kind != BufferKind::temp || it.kind == ItemKind::scatter ||
        whole.contains(static_cast<int>(i))) {
      continue;
    }
    const auto r = readers.find(&it.value.node());
    if (r == readers.end()) continue;
    it.stored = !(r->second.size() == 1 && *r->second.begin() == s.item_group[i]);
  }
}

}  // namespace tensorgrad::schedule
