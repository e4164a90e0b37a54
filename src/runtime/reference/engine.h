// The reference interpreter as an engine.
#pragma once

#include <memory>

#include "train/engine.h"

namespace tensorgrad {

/// An engine that interprets graphs op by op in double precision. Its state keeps double precision
/// between steps, and is read and written as its dtype.
std::shared_ptr<Engine> make_reference_engine();

}  // namespace tensorgrad
