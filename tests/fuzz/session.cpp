#include "fuzz/session.h"

#include "fuzz/minimise.h"
#include "tensorgrad/error.h"
#ifdef TENSORGRAD_TEST_CPU
#include "runtime/cpu/device.h"
#endif

namespace tensorgrad::fuzz {

Session::Session(const SessionOptions& options) : options_(options) {
#ifdef TENSORGRAD_TEST_CPU
  if (options.device == "cpu") {
    cpu::OpenOptions open{.threads = 1, .compile_threads = 1, .caches = false, .poisons = true};
    optimising_ = cpu::open(open);
    open.optimises = false;
    device_ = cpu::open(open);
    return;
  }
#endif
  device_ = optimising_ = open_device(options.device);
}

Compilation Session::compilation(std::uint64_t seed) const {
  testing::Rng rng(seed * 7919 + 1);
  constexpr std::uint64_t optimised_share = 8;
  Compilation how;
  how.device = rng() % optimised_share == 0 ? optimising_ : device_;
  how.target = how.device->target();
  how.flushes = options_.device == "webgpu";
  if (options_.device == "cpu") {
    // What other devices ask of the schedule.
    if (rng() % 6 == 0) how.target.max_buffers = rng() % 2 == 0 ? 8 : 5;
    if (rng() % 6 == 0) how.target.alignment = 256;
    if (rng() % 6 == 0) how.target.attention = false;
  }
  const auto kind = rng() % 10;
  for (const std::string& pass : options_.passes) {
    const double share = kind < 4 ? 0 : kind < 7 ? 0.15 : kind < 9 ? 0.5 : 1;
    if (testing::unit(rng) < share) how.off.push_back(pass);
  }
  return how;
}

std::string Session::describe(std::uint64_t seed) const {
  return to_text(random_program(seed, options_.graphs), compilation(seed));
}

std::optional<Finding> Session::check(std::uint64_t seed) {
  Program program;
  try {
    program = random_program(seed, options_.graphs);
  } catch (const std::exception& e) {
    return Finding{seed, fmt::format("the graph cannot be made: {}", e.what()), ""};
  }
  Compilation how = compilation(seed);
  std::optional<Difference> difference = compare(program, how);
  if (!difference) return std::nullopt;
  const auto is_exception = [](const Difference& d) { return d.what.starts_with("an exception"); };
  const bool exception = is_exception(*difference);
  minimise(program, how, [&](const Program& p, const Compilation& c) {
    const auto smaller = compare(p, c);
    return smaller && is_exception(*smaller) == exception;
  });
  const auto last = compare(program, how);
  return Finding{seed,
                 fmt::format("{}\nmade smaller: {}", difference->what, last ? last->what : "gone"),
                 to_text(program, how)};
}

}  // namespace tensorgrad::fuzz
