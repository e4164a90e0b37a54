// Renders scalar and index expressions of a kernel to WGSL, each in the outermost block it can be
// computed in.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codegen/wgsl/math.h"
#include "codegen/wgsl/target.h"
#include "codegen/wgsl/writer.h"
#include "kernel/kernel.h"

namespace tensorgrad::wgsl {

/// The WGSL type of a value: bool, i32, u32, f32. An f16 is a value of f32, which holds it.
std::string_view value_type(DType dtype);
/// The type of an element in a storage buffer: bool is u32, 0 or 1; f16 is `half`, see `half_text`.
std::string_view memory_type(DType dtype);
/// The type of a binding of `elements` elements of `dtype`, by `width` (1 or 4). A target that
/// guards memory is told the length: asking for it at every access took a sixth of W3's time in
/// Chromium on SwiftShader.
std::string array_type(DType dtype, std::int64_t elements, int width, const Target& target);
/// An element of a storage buffer as a value, and a value as such an element.
std::string from_memory(DType dtype, const std::string& element);
std::string to_memory(DType dtype, const std::string& value);
/// A finite number of `dtype` as WGSL text; bool is true or false. Throws GraphError for infinities
/// and NaN, which are no constants of WGSL: `ExpressionRenderer::literal` renders those too.
std::string finite_literal(DType dtype, double value);

/// How tightly the outermost operator of a text binds.
enum class Strength : std::uint8_t { other, sum, product, unary, primary };

/// A WGSL expression and the depth of the block from which on it may be computed.
struct Rendered {
  std::string text;
  int depth = 0;
  Strength strength = Strength::primary;
  bool trivial = false;  ///< a name or a literal
  bool fragile = false;  ///< reads a buffer that the kernel writes: not to be moved or kept
  int serial = 0;        ///< of the block at `depth`; filled in by the renderer

  /// The text as an operand of something that binds at least as tightly as `least`.
  std::string operand(Strength least) const;
};
/// A name or literal, known from the block at `depth` on.
Rendered named(std::string text, int depth = 0);

/// Renders expressions of one kernel into a Writer. Index arithmetic is u32 and exact: modulo 2^32
/// inside, and every index that is divided, compared or used must be known to fit. What is used
/// several times, and what an inner loop does not change, gets a name.
///
/// All expressions that will be rendered should be counted first, so that what is used once is
/// rendered in place.
class ExpressionRenderer {
 public:
  ExpressionRenderer(const kernel::Kernel& kernel, Writer& writer, Helpers& helpers);

  /// Counts the uses in an expression that will be rendered.
  void count(kernel::Expr expr);
  void count(kernel::Index index);
  /// Counts all that the nest's stages compute.
  void count_nest();

  Rendered render(kernel::Expr expr);
  Rendered render(kernel::Index index);
  /// The index of a load or store: throws GraphError where it may be beyond 32 bits.
  Rendered render_access(kernel::Index index);
  /// As `render`, and makes it a name or a literal.
  Rendered render_named(kernel::Expr expr);

  /// Gives a loop variable its value, a u32.
  void bind_loop(int var, Rendered value);
  void unbind_loop(int var) { loops_.erase(var); }
  /// Gives the result of accumulator `slot` of `stage` its text; stage -1: the contraction.
  void bind_accumulator(int stage, int slot, Rendered value);
  /// Gives an expression a text, which stands while the innermost block is open.
  void bind(kernel::Expr expr, const std::string& name);
  /// Asked first for every load; a result replaces the load (its condition too). The value is of
  /// the load's value type.
  using LoadHook = std::function<std::optional<Rendered>(const kernel::ExprNode& load)>;
  void set_load_hook(LoadHook hook) { load_hook_ = std::move(hook); }

  /// The element `index` of a buffer as a value of its dtype.
  std::string element(int buffer, const std::string& index) const;
  /// Stores into the block at `depth`. `value` is of the buffer's dtype.
  void store(int depth, int buffer, const std::string& index, const std::string& value);

  /// Any number of `dtype`; infinities and NaN through a helper.
  std::string literal(DType dtype, double value);
  /// Two values combined as `combiner` does, running value first. Not for argmax and argmin.
  Rendered combine(kernel::Combiner combiner, DType dtype, const Rendered& running,
                   const Rendered& value);

  /// Forgets values read from buffers that have just been written.
  void memory_changed();

  Writer& writer() { return writer_; }
  Helpers& helpers() { return helpers_; }

 private:
  using Cache = std::unordered_map<std::int32_t, Rendered>;

  const Rendered* cached(Cache& cache, std::int32_t id);
  Rendered keep(Cache& cache, std::int32_t id, int uses, Rendered value);
  Rendered hoist(Rendered value);
  Rendered name_it(Rendered value);
  Rendered lift(const Rendered& operand, int depth);
  void push_operands(const kernel::ExprNode& node, std::vector<kernel::Expr>& stack) const;
  void push_values(kernel::Index index, std::vector<kernel::Expr>& stack) const;

  Rendered render_node(kernel::Expr expr);
  Rendered render_load(const kernel::ExprNode& node);
  Rendered render_range(const kernel::ExprNode& node);
  Rendered render_index_value(const kernel::ExprNode& node);
  Rendered render_sum(const kernel::IndexNode& node);
  Rendered render_division(const kernel::IndexNode& node);
  Rendered operation(const kernel::ExprNode& node);
  Rendered convert(DType from, DType to, const Rendered& value);
  Rendered binary(std::string_view op, const Rendered& a, const Rendered& b);
  Rendered call(std::string_view function, std::initializer_list<const Rendered*> args);
  Rendered divide(bool remainder, DType dtype, const kernel::ExprNode& node, const Rendered& a,
                  const Rendered& b);
  /// Whether the reciprocal of a divisor is surely a normal number, or the divisor infinite: that
  /// of Adam and of constants.
  bool is_moderate(std::int32_t divisor) const;
  Rendered shift(bool left, DType dtype, const kernel::ExprNode& node, const Rendered& a,
                 const Rendered& b);
  Rendered compare(const kernel::ExprNode& node, DType dtype, const Rendered& a, const Rendered& b);
  void require_u32(kernel::Index index) const;

  const kernel::Kernel& kernel_;
  Writer& writer_;
  Helpers& helpers_;
  std::map<int, Rendered> loops_;
  std::map<std::pair<int, int>, Rendered> accumulators_;
  LoadHook load_hook_;
  Cache exprs_, indices_;
  std::unordered_map<std::int32_t, int> expr_uses_, index_uses_;
};

}  // namespace tensorgrad::wgsl
