// The engine that compiles for a page.
#pragma once

#include <memory>

#include "train/engine.h"

namespace tensorgrad::web {

/// An engine whose programs are run by JavaScript: it makes plans, and holds what is written to its
/// memory, so that a checkpoint can be loaded and exported. Running a program throws DeviceError.
std::shared_ptr<Engine> make_engine();

}  // namespace tensorgrad::web
