// Sorts: keys that order as unsigned numbers, with positions that break ties, so that no two
// elements are equal and any sort of them is stable. Rows that fit are sorted in workgroup memory;
// longer ones are sorted there block by block and then merged through scratch, run by run. Where
// workgroup memory is no faster than a buffer, blocks are short and an element counts those before
// it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "codegen/wgsl/pass_builder.h"
#include "codegen/wgsl/render.h"
#include "tensorgrad/error.h"

namespace tensorgrad::wgsl {

using kernel::Access;
using kernel::Kernel;
using kernel::Sort;

namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

class SortRenderer {
 public:
  SortRenderer(const Kernel& kernel, const Target& target, const std::vector<bool>& writable)
      : kernel_(kernel),
        sort_(*kernel.sort),
        target_(target),
        writable_(writable),
        rows_(sort_.outer * sort_.inner) {
    if (rows_ * sort_.length > std::numeric_limits<std::uint32_t>::max()) {
      throw GraphError(fmt::format("kernel {} sorts {} elements, more than 32 bits count",
                                   kernel.name, rows_ * sort_.length));
    }
    const auto power = [](std::int64_t n) { return std::bit_ceil(static_cast<std::uint64_t>(n)); };
    const std::int64_t most = target.cpu ? 32 : 2048;
    const auto room = std::bit_floor(
        static_cast<std::uint64_t>(std::min(most, target.workgroup_bytes / (2 * element_bytes))));
    block_ = static_cast<std::int64_t>(std::min(power(sort_.length), room));
    // Short rows share a workgroup.
    constexpr std::int64_t least = 128;
    together_ = fits() ? std::min(std::max<std::int64_t>(1, least / block_),
                                  static_cast<std::int64_t>(power(rows_)))
                       : 1;
    invocations_ = std::clamp<std::int64_t>(block_ * together_ / 2, 1,
                                            std::min<std::int64_t>(256, target.invocations));
  }

  RenderedKernel render() {
    if (rows_ == 0 || sort_.length == 0) return {};
    if (target_.cpu) {
      rank_blocks();
    } else {
      sort_blocks();
    }
    if (fits()) return std::move(out_);
    constexpr int buffers = 4;  // keys and positions, to merge from and into
    out_.scratch_bytes.assign(buffers, rows_ * sort_.length * element_bytes);
    int from = 0;
    for (std::int64_t run = block_; run < sort_.length; run *= 2) {
      merge(run, from);
      from = 2 - from;
    }
    return std::move(out_);
  }

 private:
  bool fits() const { return sort_.length <= block_; }

  /// The text of the place in `access` of element `k` of the row (outer, inner).
  static std::string place(const Access& access, const std::string& k) {
    std::string text = fmt::format("outer * {}u + inner * {}u + {} * {}u", access.strides[0],
                                   access.strides[2], k, access.strides[1]);
    if (access.offset != 0) text += fmt::format(" + {}u", access.offset);
    return text;
  }

  void split_row(Writer& writer) const {
    writer.line(fmt::format("let outer = row / {}u;", sort_.inner));
    writer.line(fmt::format("let inner = row % {}u;", sort_.inner));
  }

  /// Defines `key`, by which element `k` of the row is sorted.
  void load_key(PassBuilder& pass, const std::string& k) const {
    Writer& writer = pass.writer();
    const std::string element = fmt::format("b{}[{}]", sort_.in.buffer, place(sort_.in, k));
    switch (pass.dtype(sort_.in.buffer)) {
      case DType::f16:  // sorted as f32: kernel::verify
      case DType::f32:
        // NaN is the largest, and -0 equals 0.
        writer.line(fmt::format("let bits = bitcast<u32>({});", element));
        writer.line("let size = bits & 0x7fffffffu;");
        writer.line("let ordered = select(bits | 0x80000000u, ~bits, bits != size && size != 0u);");
        writer.line("let up = select(ordered, 0xffffffffu, size > 0x7f800000u);");
        break;
      case DType::i32:
        writer.line(fmt::format("let up = bitcast<u32>({}) ^ 0x80000000u;", element));
        break;
      case DType::u32:
      case DType::bool_:
        writer.line(fmt::format("let up = {};", element));
        break;
    }
    writer.line(sort_.descending ? "let key = ~up;" : "let key = up;");
  }

  /// Stores element `from` of the row as its `to`-th.
  void store(Writer& writer, const std::string& from, const std::string& to) const {
    if (sort_.values.buffer >= 0) {
      writer.line(fmt::format("b{}[{}] = b{}[{}];", sort_.values.buffer, place(sort_.values, to),
                              sort_.in.buffer, place(sort_.in, from)));
    }
    if (sort_.indices.buffer >= 0) {
      writer.line(
          fmt::format("b{}[{}] = i32({});", sort_.indices.buffer, place(sort_.indices, to), from));
    }
  }

  /// Groups of a pass with an invocation an element.
  static constexpr std::int64_t flat_invocations = 64;
  std::int64_t flat_groups() const { return ceil_div(rows_ * sort_.length, flat_invocations); }
  /// Defines n, the element of the invocation, and its row, the row's base and column.
  void split_element(Writer& writer) const {
    const std::int64_t count = rows_ * sort_.length;
    writer.line(fmt::format("let n = group * {}u + local;", flat_invocations));
    if (count % flat_invocations != 0) {
      writer.line(fmt::format("if (n >= {}u) {{ return; }}", count));
    }
    writer.line(fmt::format("let row = n / {}u;", sort_.length));
    writer.line(fmt::format("let base = row * {}u;", sort_.length));
    writer.line("let column = n - base;");
  }

  /// Opens a loop over the elements of a workgroup: defines n, row and column, and skips what is
  /// beyond the row.
  void open_elements(Writer& writer) const {
    const std::int64_t blocks = ceil_div(sort_.length, block_);
    writer.open(
        fmt::format("for (var n = local; n < {}u; n += {}u)", block_ * together_, invocations_));
    if (fits()) {
      writer.line(fmt::format("let row = group * {}u + n / {}u;", together_, block_));
      writer.line(fmt::format("let column = n % {}u;", block_));
    } else {
      writer.line(fmt::format("let row = group / {}u;", blocks));
      writer.line(fmt::format("let column = group % {}u * {}u + n;", blocks, block_));
    }
  }

  void sort_blocks() {
    const std::int64_t groups =
        fits() ? ceil_div(rows_, together_) : rows_ * ceil_div(sort_.length, block_);
    PassBuilder pass(kernel_, target_, writable_, invocations_, groups);
    Writer& writer = pass.writer();
    const std::int64_t size = block_ * together_;
    const std::string keys = pass.workgroup_array("u32", size);
    const std::string positions = pass.workgroup_array("u32", size);
    const std::string inside = fmt::format("row < {}u && column < {}u", rows_, sort_.length);

    open_elements(writer);
    // What is beyond the row comes last: its positions are larger.
    writer.line(fmt::format("{}[n] = 0xffffffffu;", keys));
    writer.line(fmt::format("{}[n] = column;", positions));
    writer.open(fmt::format("if ({})", inside));
    split_row(writer);
    load_key(pass, "column");
    writer.line(fmt::format("{}[n] = key;", keys));
    writer.close();
    writer.close();
    writer.line("workgroupBarrier();");

    writer.open(fmt::format("for (var k = 2u; k <= {}u; k <<= 1u)", block_));
    writer.open("for (var j = k >> 1u; j > 0u; j >>= 1u)");
    writer.open(fmt::format("for (var n = local; n < {}u; n += {}u)", size / 2, invocations_));
    writer.line("let x = 2u * n - (n & (j - 1u));");
    writer.line("let y = x + j;");
    writer.line(fmt::format("let rises = (x & k & {}u) == 0u;", block_ - 1));
    for (const char* at : {"x", "y"}) {
      writer.line(fmt::format("let k{0} = {1}[{0}];", at, keys));
      writer.line(fmt::format("let p{0} = {1}[{0}];", at, positions));
    }
    writer.open("if ((kx > ky || (kx == ky && px > py)) == rises)");
    writer.line(fmt::format("{0}[x] = ky; {0}[y] = kx;", keys));
    writer.line(fmt::format("{0}[x] = py; {0}[y] = px;", positions));
    writer.close();
    writer.close();
    writer.line("workgroupBarrier();");
    writer.close();
    writer.close();

    open_elements(writer);
    writer.open(fmt::format("if ({})", inside));
    if (fits()) {
      split_row(writer);
      writer.line(fmt::format("let position = {}[n];", positions));
      store(writer, "position", "column");
    } else {
      const std::string at = fmt::format("row * {}u + column", sort_.length);
      writer.line(fmt::format("{}[{}] = {}[n];", pass.scratch(0), at, keys));
      writer.line(fmt::format("{}[{}] = {}[n];", pass.scratch(1), at, positions));
    }
    writer.close();
    writer.close();
    out_.passes.push_back(pass.finish());
  }

  /// An invocation an element: its place in its block is the number of those before it.
  void rank_blocks() {
    PassBuilder pass(kernel_, target_, writable_, flat_invocations, flat_groups());
    Writer& writer = pass.writer();
    split_element(writer);
    split_row(writer);
    load_key(pass, "column");
    writer.line("let mine = key;");
    writer.line(fmt::format("let first = column / {0}u * {0}u;", block_));
    writer.line("var to = first;");
    writer.open(
        fmt::format("for (var k = first; k < min(first + {}u, {}u); k++)", block_, sort_.length));
    load_key(pass, "k");
    writer.line("to += select(0u, 1u, key < mine || (key == mine && k < column));");
    writer.close();
    if (fits()) {
      store(writer, "column", "to");
    } else {
      writer.line(fmt::format("{}[base + to] = mine;", pass.scratch(0)));
      writer.line(fmt::format("{}[base + to] = column;", pass.scratch(1)));
    }
    out_.passes.push_back(pass.finish());
  }

  /// Merges neighbouring sorted runs of `run` elements: an element moves up by the number of those
  /// of the other run that come before it. The last merge stores the result.
  void merge(std::int64_t run, int from) {
    const bool last = 2 * run >= sort_.length;
    PassBuilder pass(kernel_, target_, writable_, flat_invocations, flat_groups());
    Writer& writer = pass.writer();
    split_element(writer);
    const std::string keys = pass.scratch(from);
    const std::string positions = pass.scratch(from + 1);
    writer.line(fmt::format("let key = {}[n];", keys));
    writer.line(fmt::format("let position = {}[n];", positions));
    writer.line(fmt::format("let run = column / {}u;", run));
    writer.line(fmt::format("let other = min((run ^ 1u) * {}u, {}u);", run, sort_.length));
    writer.line("var low = other;");
    writer.line(fmt::format("var high = min(other + {}u, {}u);", run, sort_.length));
    writer.open("while (low < high)");
    writer.line("let middle = low + (high - low) / 2u;");
    writer.line(fmt::format("let k = {}[base + middle];", keys));
    writer.open(
        fmt::format("if (k < key || (k == key && {}[base + middle] < position))", positions));
    writer.line("low = middle + 1u;");
    writer.close();
    writer.open("else");
    writer.line("high = middle;");
    writer.close();
    writer.close();
    writer.line(fmt::format("let to = column - (run & 1u) * {}u + (low - other);", run));
    if (last) {
      split_row(writer);
      store(writer, "position", "to");
    } else {
      writer.line(fmt::format("{}[base + to] = key;", pass.scratch(2 - from)));
      writer.line(fmt::format("{}[base + to] = position;", pass.scratch(3 - from)));
    }
    out_.passes.push_back(pass.finish());
  }

  const Kernel& kernel_;
  const Sort& sort_;
  const Target& target_;
  const std::vector<bool>& writable_;
  std::int64_t rows_;
  std::int64_t block_ = 1;     ///< elements sorted together, a power of two
  std::int64_t together_ = 1;  ///< rows of a workgroup
  std::int64_t invocations_ = 1;
  RenderedKernel out_;
};

}  // namespace

RenderedKernel render_sort(const Kernel& kernel, const Target& target,
                           const std::vector<bool>& writable) {
  return SortRenderer(kernel, target, writable).render();
}

}  // namespace tensorgrad::wgsl
