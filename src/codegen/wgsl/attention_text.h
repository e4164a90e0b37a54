// What attention by rows and attention by tiles write alike.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/wgsl/pass_builder.h"

namespace tensorgrad::wgsl {

/// Vectors of four that hold `n` numbers.
constexpr std::int64_t quads(std::int64_t n) { return (n + 3) / 4; }

/// A pass of attention while it is built. `batch` is the point of the batch, NAME_base where
/// operand NAME begins for it.
class AttentionPass {
 public:
  /// As PassBuilder. The attention must be the kernel's and outlive the pass.
  AttentionPass(const kernel::Kernel& kernel, const kernel::Attention& attention,
                const Target& target, const std::vector<bool>& writable, std::int64_t invocations,
                std::int64_t groups);

  PassBuilder& builder() { return builder_; }

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    writer_.line(fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void open(fmt::format_string<Args...> format, Args&&... args) {
    writer_.open(fmt::format(format, std::forward<Args>(args)...));
  }
  void close() { writer_.close(); }
  void barrier() { line("workgroupBarrier();"); }

  /// Defines NAME_base.
  void base(std::string_view name, const kernel::Access& access);
  /// Where row `row` of an operand begins.
  static std::string row_of(std::string_view name, const kernel::Access& access,
                            const std::string& row);
  /// A function NAME_four(at, c) that reads four numbers of the row at `at`, zeros beyond its end;
  /// where `wide`, from an argument of vectors.
  std::string four(std::string_view name, const kernel::Access& access, std::int64_t columns,
                   bool wide = false);
  /// The score of a query and a key whose product is known.
  std::string score_of(const std::string& product, const std::string& query,
                       const std::string& key) const;
  /// The exponential of a score less `by`: 0 for minus infinity and what does not count.
  std::string exponential(const std::string& score, const std::string& by);
  std::string lse_at(const std::string& query) const;
  /// Where, in scratch, the product of a query's result and the result's gradient stands.
  std::string delta_at(const std::string& query);

 protected:
  const kernel::Attention& a_;

 private:
  PassBuilder builder_;
  Writer& writer_;
  std::set<std::string> declared_;
};

}  // namespace tensorgrad::wgsl
