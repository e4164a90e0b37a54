// What compiling a workload for the CPU costs, everything from tracing to its first step included.
// TENSORGRAD_CACHE=0 keeps the compiled kernels of earlier runs out of it.
#include <benchmark/benchmark.h>

#include <string>

#include "workloads.h"

namespace {

void compile(benchmark::State& state, const std::string& work) {
  for ([[maybe_unused]] auto _ : state) {
    auto run = tensorgrad::tools::open_workload(work, "cpu");
    benchmark::DoNotOptimize(run.step(0).loss());
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const char* work : {"W1", "W2", "W3c"}) {
    benchmark::RegisterBenchmark((std::string("compile ") + work).c_str(), compile, work)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
  benchmark::RunSpecifiedBenchmarks();
}
