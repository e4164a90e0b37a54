#include "graph/order.h"

#include <algorithm>
#include <numeric>

namespace tensorgrad {

std::vector<std::size_t> sorted_indices(std::size_t count, const void* context,
                                        bool (*precedes)(const void* context, std::size_t,
                                                         std::size_t)) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return precedes(context, a, b); });
  return order;
}

}  // namespace tensorgrad
