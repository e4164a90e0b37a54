#include "ops/registry.h"

#include <fmt/format.h>

#include "ops/primitives.h"

namespace tensorgrad {

std::span<const Op* const> registry() {
  static const std::vector<const Op*> rows = [] {
    std::vector<const Op*> all;
    for (auto family : {leaf_ops(), elementwise_ops(), view_ops(), slice_ops(), concat_ops(),
                        tag_ops(), custom_ops(), reduce_ops(), scan_ops(), sort_ops(),
                        contract_ops(), conv_ops(), attention_ops(), gather_ops(), random_ops()}) {
      for (const Op& op : family) all.push_back(&op);
    }
    return all;
  }();
  return rows;
}

const Op& find_op(std::string_view name) {
  for (const Op* op : registry()) {
    if (*op->name == name) return *op;
  }
  throw GraphError(fmt::format("There is no op named `{}`.", name));
}

}  // namespace tensorgrad
