// Sorting for all of the compiler. The lists are short and of many types: an algorithm for each
// type and order of its own would be a tenth of the browser's module.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace tensorgrad {

/// The indices 0 to count - 1 in an order in which none comes after one that it `precedes`; those
/// of which neither precedes the other stay in ascending order. `context` is handed on.
std::vector<std::size_t> sorted_indices(std::size_t count, const void* context,
                                        bool (*precedes)(const void* context, std::size_t,
                                                         std::size_t));

/// The indices of `values` in ascending order by `less`; equal ones stay in order.
template <typename T, typename Less = std::less<>>
std::vector<std::size_t> sorted_indices(const std::vector<T>& values, const Less& less = {}) {
  const std::pair<const std::vector<T>&, const Less&> both(values, less);
  return sorted_indices(values.size(), &both,
                        [](const void* context, std::size_t a, std::size_t b) -> bool {
                          const auto& [list, before] = *static_cast<decltype(&both)>(context);
                          return before(list[a], list[b]);
                        });
}

/// Puts `values` in ascending order by `less`; equal ones stay in order.
template <typename T, typename Less = std::less<>>
void sort_values(std::vector<T>& values, const Less& less = {}) {
  std::vector<T> sorted;
  sorted.reserve(values.size());
  for (const std::size_t i : sorted_indices(values, less)) sorted.push_back(std::move(values[i]));
  values = std::move(sorted);
}

}  // namespace tensorgrad
