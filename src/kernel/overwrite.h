// When a kernel may write over what it reads.
#pragma once

#include "kernel/kernel.h"

namespace tensorgrad::kernel {

/// The kernel with equal loops of different stages made one, so that what two stages access or
/// compute alike is one index or expression.
Kernel share_loops(const Kernel& kernel);

/// Whether the nest's stores to argument `to` spare what its loads of argument `from` mean to read,
/// were both one buffer (or are they the same argument): each loaded element is stored by the same
/// point of the outer loops, and later - by a later stage over equal loops, or by the same point of
/// the same stage - or not at all. Code generators keep to that order; see Stage. The loops of
/// `kernel` are shared.
bool reads_before_writing(const Kernel& kernel, int from, int to);

/// Whether the nest loads none of the elements of argument `arg` that it stores.
bool reads_elsewhere(const Kernel& kernel, int arg);

/// Whether the nest stores to no element of argument `to` twice, and at places that strides tell.
bool stores_once(const Kernel& kernel, int to);

}  // namespace tensorgrad::kernel
