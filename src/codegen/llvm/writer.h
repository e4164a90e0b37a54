// Text of one LLVM function, written into nested loops at once: while an inner loop is open, code
// that does not depend on it can still be appended to the loops around it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tensorgrad::llvm_ir {

/// A value carried around a loop.
struct Carried {
  std::string type;
  std::string initial;
  std::string name;  ///< of the value within the loop; set by `open_loop`
};

/// Function text in scopes: 0 is the function's entry, each open loop adds one.
class Writer {
 public:
  Writer();

  /// A name that is not in use: "%v12".
  std::string fresh();
  /// Depth of the innermost open scope.
  int depth() const { return static_cast<int>(scopes_.size()) - 1; }
  /// Appends `name = instruction` to the scope at `depth` and returns the name.
  std::string assign(int depth, std::string_view instruction);
  /// Appends an instruction without a result.
  void line(int depth, std::string_view instruction);
  /// An uninitialised array on the stack.
  std::string allocate(std::string_view type, std::int64_t elements);
  /// Runs the code that `body` appends to the same scope only where `condition` holds.
  template <class Body>
  void when(int depth, const std::string& condition, Body body) {
    const Branch branch = open_branch(depth, condition);
    body();
    close_branch(depth, branch);
  }
  /// As `when`; the result is the value that `body` returns, or `otherwise`.
  template <class Body>
  std::string choose(int depth, const std::string& condition, std::string_view type,
                     std::string_view otherwise, Body body) {
    const Branch branch = open_branch(depth, condition);
    const std::string value = body();
    const std::string from = block(depth);
    close_branch(depth, branch);
    return join(depth, type, value, from, otherwise, branch.before);
  }

  /// Opens a loop `for (v = begin; v < end; v += step)` that runs at least once. Returns v's name.
  std::string open_loop(std::string begin, std::string end, std::int64_t step,
                        std::vector<Carried> carried);
  /// The values carried around the innermost loop, as its body sees them.
  const std::vector<Carried>& carried() const { return scopes_.back().carried; }
  /// Closes the innermost loop; `next` are the carried values at its end, which are also their
  /// values after the loop.
  void close_loop(const std::vector<std::string>& next);

  /// The finished text of the function body. All loops must be closed.
  std::string text() const;

 private:
  struct Scope {
    std::string text;
    std::string block;  ///< label of the block that is being appended to
    std::string variable, begin, end;
    std::int64_t step = 1;
    std::vector<Carried> carried;
  };
  struct Branch {
    std::string before, after;
  };
  Branch open_branch(int depth, const std::string& condition);
  void close_branch(int depth, const Branch& branch);
  std::string join(int depth, std::string_view type, const std::string& value,
                   const std::string& from, std::string_view otherwise, const std::string& before);
  const std::string& block(int depth) const {
    return scopes_[static_cast<std::size_t>(depth)].block;
  }

  std::string allocations_;
  std::vector<Scope> scopes_;
  int next_name_ = 0;
  int next_block_ = 0;
};

}  // namespace tensorgrad::llvm_ir
