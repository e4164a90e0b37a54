// tensorgrad_fuzz: random graphs on a device against the reference, for as long as one likes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>

#include "fuzz/session.h"

namespace {

int run(int argc, char** argv) {
  using namespace tensorgrad::fuzz;
  CLI::App app{"Compares random graphs on a device with the reference interpreter."};
  std::uint64_t count = 1000, seed = 1;
  double seconds = 0;
  int most = 1;
  bool print = false;
  SessionOptions options;
  app.add_option("--count", count, "Graphs to compare")->capture_default_str();
  app.add_option("--seed", seed, "The first graph's number")->capture_default_str();
  app.add_option("--seconds", seconds, "Stop after this time (0: never)");
  app.add_option("--device", options.device, "The device")->capture_default_str();
  app.add_option("--passes", options.passes, "Passes that may be switched off")->delimiter(',');
  app.add_option("--max-nodes", options.graphs.max_nodes, "Operations in a graph at most")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--gradients", options.graphs.gradients, "Share of the graphs with gradients")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--differences", most, "Go on until this many graphs differ")
      ->capture_default_str();
  app.add_flag("--print", print, "Print the graphs instead of running them");
  CLI11_PARSE(app, argc, argv);

  Session session(options);
  const auto start = std::chrono::steady_clock::now();
  const auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::uint64_t done = 0;
  int differences = 0;
  for (; done < count && differences < most && (seconds <= 0 || passed() < seconds); ++done) {
    if (print) {
      fmt::print("// seed {}\n{}\n", seed + done, session.describe(seed + done));
      continue;
    }
    if (const auto finding = session.check(seed + done)) {
      ++differences;
      fmt::print("seed {}: {}\n{}\n", finding->seed, finding->what, finding->text);
      std::fflush(stdout);
    }
    constexpr std::uint64_t report_every = 5000;
    if ((done + 1) % report_every == 0) {
      fmt::print(stderr, "{} graphs, {} differ, {:.0f} a minute\n", done + 1, differences,
                 static_cast<double>(done + 1) * 60 / passed());
    }
  }
  fmt::print("{} graphs from seed {} on {}: {} differ; {:.0f} a minute\n", done, seed,
             options.device, differences, static_cast<double>(done) * 60 / passed());
  return differences == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "tensorgrad_fuzz: {}\n", e.what());
    return 2;
  }
}
