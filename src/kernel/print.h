// Text of expressions, with long and shared parts named.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernel/expr.h"

namespace tensorgrad::kernel {

/// Prints expressions of one pool that belong together. Operations that are used several times, and
/// parts that would make a line long, are printed once, as definitions "t0 = ..." that come before
/// the text that uses them. The text does not depend on node ids.
class Printer {
 public:
  explicit Printer(const Pool& pool) : pool_(pool) {}

  /// Counts the uses in an expression that will be printed; call for all of them first.
  void count(Expr e);
  void count(Index i);
  /// The text of `e` or `i`; definitions it needs are appended to `definitions()`.
  std::string print(Expr e);
  std::string print(Index i);
  /// Definitions since the last call.
  std::vector<std::string> take_definitions();

 private:
  struct Part {
    std::int32_t id;
    bool is_index;
  };
  /// Text with the strength of its outermost operator (higher binds tighter).
  struct Text {
    std::string text;
    int strength;
  };

  std::vector<Part> operands(Part part) const;
  std::vector<Part> in_order(Part root, bool (Printer::*is_done)(Part) const) const;
  bool is_counted(Part part) const;
  bool is_printed(Part part) const;
  void count(Part root);
  void print(Part root);
  Text& text(Part part);
  const Text& text(Part part) const;
  std::string operand(Part part, int strength) const;
  Text format(const IndexNode& n) const;
  Text format(const ExprNode& n) const;
  bool is_named(Part part, const Text& formatted) const;

  const Pool& pool_;
  std::unordered_map<std::int32_t, int> expr_uses_, index_uses_;
  std::unordered_map<std::int32_t, Text> expr_texts_, index_texts_;
  std::vector<std::string> definitions_;
  int names_ = 0;
};

/// A number as text that tells its dtype: "1.0", "1", "1u", "true".
std::string constant_text(DType dtype, double value);

}  // namespace tensorgrad::kernel
