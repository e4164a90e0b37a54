// Tensor: a cheap handle to a lazy, immutable node of a computation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tensorgrad/dtype.h"
#include "tensorgrad/error.h"

namespace tensorgrad {

/// Extents of the dimensions, outermost first. An empty shape is a scalar (rank 0); an extent of 0
/// makes an empty tensor.
using Shape = std::vector<std::int64_t>;

/// Number of elements of a tensor of this shape (1 for rank 0).
std::int64_t numel(const Shape& shape);
/// "[2, 3]", as error messages print a shape.
std::string to_string(const Shape& shape);

struct Node;

/// A value: a handle to one node of a lazily built graph. Copying shares the node; nothing is
/// computed until data is read. Handles may be used from several threads; a node never changes.
class Tensor {
 public:
  /// An empty handle; every use but assignment, destruction and `defined` is a GraphError.
  Tensor() = default;
  explicit Tensor(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

  /// Whether the handle refers to a node.
  bool defined() const { return node_ != nullptr; }
  const Shape& shape() const;
  DType dtype() const;
  /// Number of dimensions.
  int rank() const { return static_cast<int>(shape().size()); }
  /// Extent of one dimension; a negative axis counts from the end. Throws ShapeError if out of
  /// range.
  std::int64_t dim(int axis, Site site = Site::current()) const;
  std::int64_t size() const { return numel(shape()); }
  /// The node behind the handle. Throws GraphError if the handle is empty.
  const Node& node() const;
  const std::shared_ptr<const Node>& handle() const { return node_; }

  /// Computes the tensor on the default device and copies its elements out, row-major.
  /// Throws DTypeError if T does not hold the tensor's dtype, GraphError if the graph has unbound
  /// inputs.
  template <class T>
  std::vector<T> to_vector(Site site = Site::current()) const;
  /// The only element of a tensor of size 1. Throws ShapeError for any other size.
  template <class T>
  T item(Site site = Site::current()) const;

 private:
  std::shared_ptr<const Node> node_;
};

/// A scalar of any supported C++ arithmetic type, before it has met a tensor that gives it a dtype.
struct Scalar {
  double value = 0;
  enum class Kind : std::uint8_t { boolean, integer, floating } kind = Kind::floating;
};

/// An operand of an operator: a tensor or a C++ number, with the line at which the operator is
/// written. Operators take it so that errors can name the user's own line.
struct Operand {
  // NOLINTBEGIN(google-explicit-constructor): implicit by design, see above
  Operand(const Tensor& t, Site at = Site::current()) : tensor(t), site(at) {}
  template <class T>
    requires(!std::is_arithmetic_v<T> && std::is_convertible_v<const T&, Tensor>)
  Operand(const T& t, Site at = Site::current()) : tensor(static_cast<Tensor>(t)), site(at) {}
  template <class T>
    requires std::is_arithmetic_v<T>
  Operand(T v, Site at = Site::current())
      : scalar{static_cast<double>(v), std::is_same_v<T, bool> ? Scalar::Kind::boolean
                                       : std::is_integral_v<T> ? Scalar::Kind::integer
                                                               : Scalar::Kind::floating},
        site(at) {}
  // NOLINTEND(google-explicit-constructor)
  Tensor tensor;  ///< empty if the operand is a number
  Scalar scalar;
  Site site;
};

}  // namespace tensorgrad
