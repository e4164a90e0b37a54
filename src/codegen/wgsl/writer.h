// WGSL statements in nested blocks, with names given out in order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tensorgrad::wgsl {

/// Builds the body of a function. Statements may be appended to any block that is open, so that
/// what does not depend on a loop is computed before it.
class Writer {
 public:
  Writer();

  /// Number of blocks opened around the innermost one; 0 is the function's body.
  int depth() const { return static_cast<int>(blocks_.size()) - 1; }
  /// Names the block at `depth`: a later block at the same depth has another number.
  int serial(int depth) const { return blocks_[static_cast<std::size_t>(depth)].serial; }

  /// Appends `let NAME = value;` to the block at `depth` and returns NAME.
  std::string let(int depth, std::string_view value);
  /// Appends `var NAME = value;` to the block at `depth` and returns NAME.
  std::string var(int depth, std::string_view value);
  /// Appends a statement.
  void line(int depth, std::string_view statement);
  void line(std::string_view statement) { line(depth(), statement); }
  /// Opens a block: `header {`, or `{` without a header.
  void open(std::string_view header);
  /// Closes the innermost block and appends it to the one around it.
  void close();

  /// The finished text of the function body, indented. All blocks must be closed.
  std::string text() const;

 private:
  struct Block {
    std::vector<std::string> lines;
    int serial = 0;
  };
  std::vector<Block> blocks_;
  int next_name_ = 0;
  int next_serial_ = 1;
};

}  // namespace tensorgrad::wgsl
