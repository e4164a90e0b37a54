// A pass of attention by tiles while it is built.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "codegen/wgsl/attention.h"
#include "codegen/wgsl/attention_text.h"

namespace tensorgrad::wgsl {

/// A matrix of which a tile lies in workgroup memory.
struct StagedMatrix {
  const char* name;
  const kernel::Access* access;
  std::int64_t columns;
  std::string array = {};
};

/// A pass with a workgroup for each tile of `rows` rows of each point of the batch; tiles of
/// `streamed` other rows pass by. Defines rowi, own row i of an invocation.
class TilePass : public AttentionPass {
 public:
  /// `last_first` starts with the tiles at the end, which have the most to do.
  TilePass(const kernel::Kernel& kernel, const kernel::Attention& attention, const Target& target,
           const std::vector<bool>& writable, const AttentionTile& tile, std::int64_t batches,
           std::int64_t rows, std::int64_t streamed, bool last_first);

  /// Defines `NAME_base`. Rows of all matrices in an argument must be known before any is read.
  void matrix(const char* name, const kernel::Access& access, std::int64_t columns);
  /// The same for numbers that are read one by one.
  void numbers(const char* name, const kernel::Access& access);
  void mask();
  /// All matrices and numbers are known.
  void know_vectors();
  /// The function that reads four numbers of a row.
  std::string four_of(const char* name, const kernel::Access& access, std::int64_t columns);

  /// Copies this workgroup's rows of a matrix.
  void stage_own(StagedMatrix& s);
  /// Defines PREFIXi_j, products of own row i and streamed row j of this invocation.
  void products(const char* prefix, const StagedMatrix& own, const StagedMatrix& streamed);
  /// Declares PREFIXi_c, sums of results for own row i.
  void zero(const char* prefix, std::int64_t columns);
  /// Scales them, row i by FACTORi.
  void scale(const char* prefix, std::int64_t columns, const char* factor);

  /// An array in workgroup memory for the weights of own rows and streamed ones.
  std::string weights();
  void store_weights(const std::string& array, const char* prefix);
  /// PREFIXi_c += the sum over streamed rows of weight and row. Where some rows do not count for
  /// all, those are left out: what they hold may be infinite.
  void accumulate(const char* prefix, const std::string& array, const StagedMatrix& s);

  /// Calls `f(diagonal)` for the tiles in which some rows do not count for all, and for the others.
  template <class F>
  void on_and_off_diagonal(const F& f) {
    if (!a_.causal) {
      f(false);
      return;
    }
    open("if ({})", meets_diagonal());
    f(true);
    close();
    open("else");
    f(false);
    close();
  }
  /// Whether streamed row `u` counts for own row i, as WGSL; "" where it does.
  std::string counts(std::int64_t i, const std::string& u, bool diagonal) const;
  /// Defines uj, the streamed rows of this invocation, and vj, the same but never beyond the last.
  void streamed_rows();
  /// Makes PREFIXi_j of the products: scaled, with the mask, and the least number where a row does
  /// not count.
  void scores(const char* prefix, bool diagonal);
  /// Combines a value NAMEi of each lane over the lanes of a row, which all get it: the largest,
  /// or the sum. In an order that is always the same.
  void combine(const char* name, bool largest);

  /// Stores PREFIXi_c times `factor` (of which {i} is i) as rows of a result.
  void store(const char* prefix, const kernel::Access& access, std::int64_t columns,
             const std::string& factor);

  /// Whether own row i exists.
  std::string is_row(std::int64_t i) const;
  /// Opens the loop over the tiles of streamed rows that count for any row of the workgroup, the
  /// first row being `block`, and copies those rows of `matrices`, zeros beyond the last row. Row
  /// 4 r + j stands at place j * lanes + r, so that neighbours in a row of invocations read
  /// neighbours. `sums` is how many numbers an invocation adds up meanwhile.
  void open_stream(std::vector<StagedMatrix*> matrices, std::int64_t sums);
  /// Begins to read the next tile, if there are registers to hold it. The products of the current
  /// one must be done.
  void read_ahead();
  /// How many numbers `zero` declares.
  std::int64_t sums(std::int64_t columns) const {
    return tile_.rows * 4 * width(columns) / tile_.lanes;
  }
  /// The rows of a workgroup are keys, and queries stream.
  void own_keys() { owns_queries_ = false; }
  std::int64_t rows() const { return tile_.rows; }
  template <class F>
  void each(const F& f) const {
    for (std::int64_t i = 0; i < tile_.rows; ++i) {
      for (std::int64_t j = 0; j < 4; ++j) f(i, j);
    }
  }

 private:
  /// Vectors of a row of a tile, each lane having as many.
  std::int64_t width(std::int64_t columns) const;
  /// Whether the first streamed tile need not start at a multiple of its size.
  bool starts_anywhere() const { return a_.causal && !owns_queries_; }
  /// Whether a streamed tile may reach beyond the last row.
  bool reaches_beyond() const;
  std::string stream_end() const;
  std::string meets_diagonal() const;
  /// How many vectors of a streamed tile each invocation copies, and which is its vector k.
  std::int64_t copied(const StagedMatrix& s) const;
  std::string vector_of(std::int64_t k) const;
  /// NAME_nextk = vector k of the tile at `block`.
  void read(const StagedMatrix& s, std::int64_t k, const std::string& block);
  void place(const StagedMatrix& s, std::int64_t k);
  void open_if(const std::string& condition);
  void close_if();
  void store_staged(const StagedMatrix& s, const std::string& place, const std::string& row,
                    std::string condition);
  void store_narrow(const kernel::Access& access, std::int64_t columns, std::int64_t k,
                    const std::string& value);
  void add(const char* prefix, const std::string& array, const StagedMatrix& s, bool diagonal);

  const kernel::Kernel& kernel_;
  AttentionTile tile_;
  std::int64_t rows_, streamed_;
  std::set<int> wide_, narrow_;
  std::string shared_;
  std::vector<StagedMatrix*> stream_;
  bool reads_ahead_ = false;
  bool owns_queries_ = true, conditional_ = false;
};

}  // namespace tensorgrad::wgsl
