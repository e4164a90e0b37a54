// Running values of the lanes of a row, combined.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/wgsl/nest_parts.h"
#include "codegen/wgsl/nest_rows.h"

namespace tensorgrad::wgsl {

/// Combines what the lanes of each row have accumulated: in subgroups where the target has them and
/// that pays, else in workgroup memory. The order is always the same.
class LaneCombiner {
 public:
  /// All must outlive the combiner. The body defines `lane` and `local`.
  LaneCombiner(PassBuilder& builder, const Target& target, const RowLayout& layout)
      : builder_(builder), writer_(builder.writer()), target_(target), layout_(layout) {}

  /// Makes running values of a lane those of its row, for every lane. All invocations of the
  /// workgroup must come here.
  void combine(std::vector<Running>& running);

 private:
  /// Where the values of an accumulator stand in workgroup memory.
  struct Places {
    std::string values, positions;
  };

  void combine_in_subgroups(std::vector<Running>& running);
  void combine_in_memory(std::vector<Running>& running);
  /// Writes running values to workgroup memory, where all can read them afterwards.
  std::vector<Places> share(const std::vector<Running>& running, std::int64_t size,
                            const std::string& at, const std::string& guard);
  void take_shared(const Running& running, const Places& places, const std::string& at);
  /// Lanes that exchange values within a subgroup; 0 where that does not pay or is not known to
  /// work.
  std::int64_t subgroup_lanes() const;

  PassBuilder& builder_;
  Writer& writer_;
  const Target& target_;
  const RowLayout& layout_;
  std::map<std::string_view, std::vector<std::string>> arrays_;
};

}  // namespace tensorgrad::wgsl
