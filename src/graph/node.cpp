#include "graph/node.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>
#include <unordered_set>

#include "ops/registry.h"

namespace tensorgrad {
namespace {

// The outermost SiteScope of this thread.
thread_local const Site* scope_site = nullptr;

}  // namespace

SiteScope::SiteScope(const Site& site) : outermost_(scope_site == nullptr) {
  if (outermost_) scope_site = &site;
}
SiteScope::~SiteScope() {
  if (outermost_) scope_site = nullptr;
}
const Site& SiteScope::resolve(const Site& site) {
  return scope_site ? *scope_site : site;  // NOLINT(bugprone-return-const-ref-from-parameter)
}

// Releases the operands without recursion: a chain of 100,000 nodes would overflow the stack.
Node::~Node() {
  std::vector<Tensor> pending = std::move(operands);
  while (!pending.empty()) {
    Tensor t = std::move(pending.back());
    pending.pop_back();
    if (t.defined() && t.handle().use_count() == 1) {
      // The last handle: nobody else can see the node, so taking its operands is safe.
      auto& inner = const_cast<Node&>(*t.handle()).operands;
      for (Tensor& o : inner) pending.push_back(std::move(o));
      inner.clear();
    }
  }
}

std::string to_string(const Type& type) {
  return std::string(name(type.dtype)) + to_string(type.shape);
}

Tensor make(const Op& op, std::vector<Tensor> operands, Attrs attrs, const Site& site) {
  const Site& at = SiteScope::resolve(site);
  for (const Tensor& t : operands) {
    if (!t.defined()) throw GraphError(fmt::format("{}: an operand is empty.", *op.name), at);
  }
  auto node = std::make_shared<Node>();
  node->type = (*op.infer)(op, operands, attrs, at);
  node->op = &op;
  node->operands = std::move(operands);
  node->attrs = std::move(attrs);
  node->site = at;
  return Tensor(std::move(node));
}

Tensor remake(const Node& node, std::vector<Tensor> operands) {
  return make(*node.op, std::move(operands), node.attrs, node.site);
}

std::string display_name(const Tensor& t) {
  const Node* n = &t.node();
  while (true) {
    if (const auto* in = std::get_if<InputAttr>(&n->attrs)) return "`" + in->name + "`";
    if (const auto* tag = std::get_if<NameAttr>(&n->attrs)) return "`" + tag->name + "`";
    if (!lowering_as<LowerView>(*n)) return "";
    n = &n->operand(0).node();
  }
}

std::vector<const Node*> topological(std::span<const Tensor> roots, std::span<const Tensor> stop) {
  std::vector<const Node*> order;
  std::unordered_set<const Node*> done;
  std::unordered_set<const Node*> stops;
  for (const Tensor& t : stop) stops.insert(&t.node());
  struct Frame {
    const Node* node;
    std::size_t next;
  };
  std::vector<Frame> stack;
  for (const Tensor& root : roots) {
    if (!done.insert(&root.node()).second) continue;
    stack.push_back({&root.node(), 0});
    while (!stack.empty()) {
      Frame& f = stack.back();
      const bool leaf = stops.contains(f.node);
      if (leaf || f.next == f.node->operands.size()) {
        order.push_back(f.node);
        stack.pop_back();
        continue;
      }
      const Node* o = &f.node->operands[f.next++].node();
      if (done.insert(o).second) stack.push_back({o, 0});
    }
  }
  return order;
}

}  // namespace tensorgrad
