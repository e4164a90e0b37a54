// What compiling a workload for the CPU costs, everything from tracing to its first step included.
// TENSORGRAD_CACHE=0 keeps the compiled kernels of earlier runs out of it.
#include <benchmark/benchmark.h>

#include <string>

#include "workloads.h"

namespace {

void Compile(benchmark::State& state, const std::string& work) {
  for ([[maybe_unused]] auto _ : state) {
    auto run = tensorgrad::tools::open_workload(work, "cpu");
    benchmark::DoNotOptimize(run.step(0).loss());
  }
}
BENCHMARK_CAPTURE(Compile, W1, "W1")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(Compile, W2, "W2")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(Compile, W3c, "W3c")->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
