// The program of the install tests: builds a small expression, and gets a typed error that names
// this file. tests/install/run.cmake knows what it prints.
#include <cstdio>
#include <string>

#include "tensorgrad/error.h"
#include "tensorgrad/ops.h"

int main() {
  const tensorgrad::Tensor x = tensorgrad::array({1, 2, 3});
  const tensorgrad::Tensor outer = reshape(x, {3, 1}) * x + 1;
  std::printf("shape %s\n", tensorgrad::to_string(outer.shape()).c_str());
  try {
    static_cast<void>(outer + tensorgrad::zeros({2}));
  } catch (const tensorgrad::ShapeError& error) {
    return std::string(error.what()).find("main.cpp:") != std::string::npos ? 0 : 1;
  }
  return 1;
}
