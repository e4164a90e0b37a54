// Derivatives that a program gives itself.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tensorgrad/tensor.h"

namespace tensorgrad {

/// The derivative of a `custom` node, whose operands are its value, the inputs that the value is a
/// function of, and residuals that the derivative reads.
class CustomRule {
 public:
  explicit CustomRule(std::size_t input_count) : input_count_(input_count) {}
  CustomRule(const CustomRule&) = delete;
  CustomRule& operator=(const CustomRule&) = delete;
  virtual ~CustomRule() = default;

  /// Cotangents of the inputs for one of the value; empty handles are zeros.
  virtual std::vector<Tensor> pull(std::span<const Tensor> inputs,
                                   std::span<const Tensor> residuals,
                                   const Tensor& cotangent) const = 0;
  /// The value's tangent for those of the inputs (empty handles are zeros; one is not).
  virtual Tensor push(std::span<const Tensor> inputs, std::span<const Tensor> residuals,
                      std::span<const Tensor> tangents) const = 0;
  std::size_t input_count() const { return input_count_; }

 private:
  std::size_t input_count_;
};

}  // namespace tensorgrad
