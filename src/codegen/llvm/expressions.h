// Renders scalar and index expressions of a kernel to LLVM IR, each in the outermost loop it can be
// computed in.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codegen/llvm/writer.h"
#include "kernel/kernel.h"

namespace tensorgrad::llvm_ir {

/// The SSA type of a dtype: bool is i1.
std::string_view ssa_type(DType dtype);
/// The type of an element in memory: bool is i8.
std::string_view memory_type(DType dtype);
/// A constant of `dtype` as IR text.
std::string literal(DType dtype, double value);

/// An SSA name and the depth of the scope that defines it.
struct Rendered {
  std::string name;
  int depth = 0;
  bool fragile = false;  ///< reads a buffer that the kernel writes: not to be moved or kept
};

/// Renders expressions of one kernel into a Writer, each distinct one once a scope.
class ExpressionRenderer {
 public:
  ExpressionRenderer(const kernel::Kernel& kernel, Writer& writer);

  Rendered render(kernel::Expr expr);
  Rendered render(kernel::Index index);

  /// Gives a loop variable its value.
  void bind_loop(int var, Rendered value);
  void unbind_loop(int var) { loops_.erase(var); }
  const Rendered& loop(int var) const { return loops_.at(var); }
  /// Gives an expression its value until the scope of the value is closed.
  void bind_value(kernel::Expr expr, Rendered value) { exprs_[expr.id] = std::move(value); }
  /// Says how accumulator `slot` of `stage` is read.
  void bind_accumulator(int stage, int slot, std::function<Rendered()> read);

  /// The address of buffer[index]; as deep as `index`.
  Rendered address(int buffer, kernel::Index index);
  /// memory[address] as an SSA value, at `depth`.
  std::string load(int depth, DType dtype, const std::string& address);
  void store(int depth, DType dtype, const std::string& value, const std::string& address);

  /// Forgets the values defined in scopes deeper than the innermost open one.
  void scope_closed();
  /// Forgets values read from buffers that have just been written.
  void memory_changed();

  /// Two values combined as `combiner` does, running value first; `relaxed` lets sums and products
  /// be reordered. Not for argmax and argmin.
  std::string combine(int depth, kernel::Combiner combiner, DType dtype, const std::string& running,
                      const std::string& value);

  /// Functions and intrinsics that the code uses, each with its definition or declaration.
  const std::set<std::pair<kernel::Fn, DType>>& helpers() const { return helpers_; }
  const std::set<std::string>& declarations() const { return declarations_; }

 private:
  Rendered render_node(kernel::Expr expr);
  Rendered render_load(const kernel::ExprNode& node);
  Rendered render_range(const kernel::ExprNode& node);
  Rendered render_index_value(const kernel::ExprNode& node);
  Rendered render_division(const kernel::IndexNode& node);
  std::string opaque(double infinity);
  std::string operation(int depth, const kernel::ExprNode& node,
                        const std::vector<std::string>& args);
  /// Whether an operand of a sum is negated.
  bool subtracts(const kernel::ExprNode& sum) const;
  std::string convert(int depth, DType from, DType to, const std::string& value);
  std::string divide(int depth, bool remainder, DType dtype, const std::string& a,
                     const std::string& b);
  std::string shift(int depth, bool left, DType dtype, const std::string& a, const std::string& b);
  std::string call(int depth, std::string_view result, std::string_view function,
                   std::initializer_list<std::pair<std::string_view, std::string>> args);
  Rendered keep(std::unordered_map<std::int32_t, Rendered>& cache, std::int32_t id, Rendered value);
  void collect(kernel::Expr expr, std::set<std::int32_t>& ids) const;
  void collect(kernel::Index index, std::vector<kernel::Expr>& exprs) const;

  const kernel::Kernel& kernel_;
  std::vector<bool> stored_;  ///< whether the nest writes the buffer
  Writer& writer_;
  std::map<double, std::string> opaque_;
  std::map<int, Rendered> loops_;
  std::map<std::pair<int, int>, std::function<Rendered()>> accumulators_;
  std::unordered_map<std::int32_t, Rendered> exprs_, indices_;
  std::set<std::pair<kernel::Fn, DType>> helpers_;
  std::set<std::string> declarations_;
};

}  // namespace tensorgrad::llvm_ir
