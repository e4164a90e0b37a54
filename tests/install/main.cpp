// The program of the install tests: uses an inline part of the headers and a compiled part of the
// library, and says what it got.
#include <cstdio>

#include "tensorgrad/error.h"
#include "tensorgrad/tensor.h"

int main() {
  const tensorgrad::Shape shape{2, 3};
  if (tensorgrad::numel(shape) != 6 || tensorgrad::to_string(shape) != "[2, 3]") return 1;
  try {
    throw tensorgrad::ShapeError("thrown across the library's border", tensorgrad::Site::current());
  } catch (const tensorgrad::Error& error) {
    std::printf("shape %s\n", tensorgrad::to_string(shape).c_str());
    return error.what()[0] == 't' ? 0 : 1;
  }
}
