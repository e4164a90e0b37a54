// The command `tensorgrad`.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include "command.h"

namespace {

int run(int argc, char** argv) {
  using namespace tensorgrad::tools;
  CLI::App app{"Trains, evaluates and shows models that are compiled into one program.",
               "tensorgrad"};
  app.set_version_flag("--version", "tensorgrad " TENSORGRAD_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  tensorgrad devices\n"
      "  tensorgrad train fashion-mnist --model cnn\n"
      "  tensorgrad eval --run runs/fashion-mnist\n"
      "  tensorgrad bench W1,W3,W3c --device cpu\n"
      "\n"
      "Each subcommand explains itself: tensorgrad train --help\n"
      "Exit codes: 0 good, 1 the job failed, 2 bad usage.");
  const std::vector<Subcommand> subcommands{add_devices(app), add_train(app), add_eval(app),
                                            add_inspect(app), add_bench(app), add_tune(app),
                                            add_ops(app),     add_export(app)};
  // The parser would only say that a subcommand is missing.
  const bool known =
      argc < 2 || argv[1][0] == '-' ||
      std::ranges::any_of(
          subcommands, [&](const Subcommand& s) { return s.parser->get_name() == argv[1]; });
  if (!known) {
    throw UsageError(fmt::format("There is no subcommand \"{}\".", argv[1]));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      app.exit(error);  // prints the help or the version
      return job_done;
    }
    throw UsageError(error.what());
  }
  for (const Subcommand& s : subcommands) {
    if (s.parser->parsed()) return s.run();
  }
  return bad_usage;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tensorgrad::tools;
  try {
    return run(argc, argv);
  } catch (const UsageError& error) {
    fmt::print(stderr, "error: {}\nTry --help.\n", error.what());
    return bad_usage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return job_failed;
  }
}
