// Tests run with WebGPU's own checks on, unless the environment says otherwise.
#include <cstdlib>

namespace {

[[maybe_unused]] const bool validating = setenv("TENSORGRAD_WEBGPU_VALIDATE", "1", 0) == 0;

}  // namespace
