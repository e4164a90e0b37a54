// What the subcommands share: how each is declared and run, and errors of usage.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>
#include <string>

namespace tensorgrad::tools {

inline constexpr int job_done = 0, job_failed = 1, bad_usage = 2;

/// What was asked for makes no sense: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A subcommand: its parser, and what to run if it was chosen, which returns the exit code.
struct Subcommand {
  CLI::App* parser = nullptr;
  std::function<int()> run;
};

Subcommand add_devices(CLI::App& parent);
Subcommand add_train(CLI::App& parent);
Subcommand add_eval(CLI::App& parent);
Subcommand add_inspect(CLI::App& parent);
Subcommand add_bench(CLI::App& parent);
Subcommand add_tune(CLI::App& parent);
Subcommand add_ops(CLI::App& parent);
Subcommand add_export(CLI::App& parent);

/// Adds `--device`, which takes "auto", "reference" or the name of a backend of this build.
void add_device_option(CLI::App& parser, std::string& device);
/// Adds `--data`, the folder of the data set's files.
void add_data_option(CLI::App& parser, std::string& folder);

}  // namespace tensorgrad::tools
