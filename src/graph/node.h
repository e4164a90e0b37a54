// Node: one primitive op applied to operands.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/attrs.h"
#include "tensorgrad/tensor.h"

namespace tensorgrad {

struct Op;  // ops/registry.h

/// Shape and dtype of a tensor.
struct Type {
  Shape shape;
  DType dtype = DType::f32;
  bool operator==(const Type&) const = default;
};

/// "f32[2, 3]".
std::string to_string(const Type& type);

/// One primitive op applied to operands. Immutable once made; destroyed without recursion, so that
/// chains of any depth are safe.
struct Node : std::enable_shared_from_this<Node> {
  const Op* op = nullptr;
  std::vector<Tensor> operands;
  Attrs attrs;
  Type type;
  Site site;

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();

  const Tensor& operand(std::size_t i) const { return operands[i]; }
  template <class A>
  const A& attr() const {
    return std::get<A>(attrs);
  }
};

/// A handle to a node that some handle owns already.
inline Tensor handle_of(const Node& node) { return Tensor(node.shared_from_this()); }

/// Applies a primitive: infers the type by the op's rule (whose errors name `site`) and makes the
/// node.
Tensor make(const Op& op, std::vector<Tensor> operands, Attrs attrs, const Site& site);
/// The same op and attributes on other operands (a rebuilt node keeps its site).
Tensor remake(const Node& node, std::vector<Tensor> operands);

/// While one lives, every node made on this thread carries its site and errors name it, so that a
/// composed function and the rules of a transform speak of the user's own line. The outermost wins.
class SiteScope {
 public:
  explicit SiteScope(const Site& site);
  ~SiteScope();
  SiteScope(const SiteScope&) = delete;
  SiteScope& operator=(const SiteScope&) = delete;
  /// The outermost scope's site, or `site` where there is none.
  static const Site& resolve(const Site& site);

 private:
  bool outermost_;
};

/// "`head.W`", if the tensor is a named input or parameter seen through views; else "".
std::string display_name(const Tensor& t);

/// All nodes that `roots` reach, operands before users, without recursion; the order depends on the
/// graph alone. Nodes in `stop` are included but not entered.
std::vector<const Node*> topological(std::span<const Tensor> roots,
                                     std::span<const Tensor> stop = {});

}  // namespace tensorgrad
