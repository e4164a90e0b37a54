// WGSL text of the parts that contraction templates share.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "codegen/wgsl/contract.h"

namespace tensorgrad::wgsl {

/// Lines of WGSL with the indentation of the blocks they are in.
class Lines {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_.append(static_cast<std::size_t>(depth_) * 2, ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  /// Opens a block: "header {".
  template <class... Args>
  void open(fmt::format_string<Args...> format, Args&&... args) {
    const std::string header = fmt::format(format, std::forward<Args>(args)...);
    line("{} {{", header);
    ++depth_;
  }
  /// Opens a block of its own.
  void open_scope() {
    line("{{");
    ++depth_;
  }
  void close() {
    --depth_;
    line("}}");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_ = 0;
};

/// A dimension of an axis as one operand sees it.
struct Dim {
  std::int64_t extent = 1, stride = 0;
};
/// The dimensions of an axis, those that nest merged, none of extent 1.
std::vector<Dim> merged(const Extents& extents, const Extents& strides);

/// u32 literal, wrapped.
std::string number(std::int64_t value);
/// Sum of stride * digit, where `variable` (an identifier) counts the points of `dims`. A term that
/// is 0 is left out; "0u" where all are.
std::string affine(const std::string& variable, const std::vector<Dim>& dims);
/// The same with digits of `extents` and coefficients for them, as i32.
std::string signed_affine(const std::string& variable, const Extents& extents,
                          const Extents& coefficients);
/// a + b without terms that are zero.
std::string sum(const std::string& a, const std::string& b);

/// Whether an operand's elements can be read four at a time along an axis.
bool is_wide_outer(const Operand& operand, const Problem& problem, const Extents& outer,
                   const WideArgs& wide);
bool is_wide_depth(const Operand& operand, const Problem& problem, const Extents& outer,
                   const WideArgs& wide);

/// Declares how a windowed operand is read, with `name` before each: a struct `name_place`, and
/// functions name_outer(z, o), name_depth(k), name_at(outer place, depth place).
std::string window_functions(const std::string& name, const Operand& operand,
                             const Problem& problem, const Extents& outer, const WideArgs& wide);

/// A function exact(z, m, n, value) that gives back `value`, or, where it is NaN, the sum without
/// the products of what lies beyond the edges of the windows: zeros stand there, and a zero times
/// an infinity is NaN. With it finish_exact, and with `fours` finish4_exact, which hand it on to
/// the functions of the epilogue.
std::string exact_functions(const Problem& problem, const WideArgs& wide, bool ones, bool fours);

/// Groups of a one-dimensional grid, and the WGSL of a workgroup's number in it.
struct Grid {
  std::array<std::uint32_t, 3> groups{1, 1, 1};
  std::string number;  ///< in terms of workgroup_id `group`
};
Grid linear_grid(std::int64_t count, const Target& target);

}  // namespace tensorgrad::wgsl
