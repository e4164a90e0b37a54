// Everything.
#pragma once

// IWYU pragma: begin_exports
#include "tensorgrad/compile.h"
#include "tensorgrad/data.h"
#include "tensorgrad/dtype.h"
#include "tensorgrad/error.h"
#include "tensorgrad/io.h"
#include "tensorgrad/jit.h"
#include "tensorgrad/module.h"
#include "tensorgrad/nn.h"
#include "tensorgrad/ops.h"
#include "tensorgrad/optim.h"
#include "tensorgrad/random.h"
#include "tensorgrad/tensor.h"
#include "tensorgrad/transforms.h"
#include "tensorgrad/tree.h"
// IWYU pragma: end_exports
