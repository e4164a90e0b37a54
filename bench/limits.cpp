// What this processor can do at best, to be read beside what kernels reach: bytes read and copied,
// and multiply-adds. `--benchmark_filter=read`; a number of threads is in each name.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <vector>

namespace {

constexpr std::size_t lanes = 16;
constexpr std::size_t chains = 8;
using Vector = float __attribute__((vector_size(lanes * sizeof(float))));

/// Sums an array of `range(0)` floats for each thread: what a sum, whose additions are free beside
/// its loads, cannot be faster than.
void read(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const std::vector<Vector> x(size / lanes, Vector{} + 1);
  for ([[maybe_unused]] auto _ : state) {
    std::array<Vector, chains> sums{};
    for (std::size_t i = 0; i < x.size(); i += chains) {
      for (std::size_t k = 0; k < chains; ++k) sums[k] += x[i + k];
    }
    benchmark::DoNotOptimize(sums);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}

/// Copies an array: counts the bytes read and the bytes written.
void copy(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const std::vector<Vector> x(size / lanes, Vector{} + 1);
  std::vector<Vector> y(x.size());
  for ([[maybe_unused]] auto _ : state) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] + 1;
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 8);
}

/// Multiply-adds in registers; `flops` counts two for each.
void multiply_add(benchmark::State& state) {
  constexpr int steps = 1024;
  std::array<Vector, chains + 4> sums{};
  Vector x = Vector{} + 1;
  benchmark::DoNotOptimize(x);
  for ([[maybe_unused]] auto _ : state) {
    for (int i = 0; i < steps; ++i) {
      for (Vector& sum : sums) sum = sum * x + x;
    }
    benchmark::DoNotOptimize(sums);
  }
  const auto flops = static_cast<double>(state.iterations()) * steps * 2.0 *
                     static_cast<double>(sums.size() * lanes);
  state.counters["flops"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const std::int64_t size : {1 << 14, 1 << 18, 1 << 22, 1 << 26}) {
    benchmark::RegisterBenchmark("read", read)->Arg(size)->ThreadRange(1, 2)->UseRealTime();
    benchmark::RegisterBenchmark("copy", copy)->Arg(size)->ThreadRange(1, 2)->UseRealTime();
  }
  benchmark::RegisterBenchmark("multiply_add", multiply_add)->ThreadRange(1, 2)->UseRealTime();
  benchmark::RunSpecifiedBenchmarks();
}
