// `tensorgrad ops`: the primitives and what is known about each.
#include <fmt/core.h>

#include <memory>

#include "command.h"
#include "ops_table.h"

namespace tensorgrad::tools {

Subcommand add_ops(CLI::App& parent) {
  CLI::App* parser = parent.add_subcommand(
      "ops", "Prints the table of primitive ops as Markdown: the page docs/ops.md.");
  const auto json = std::make_shared<bool>(false);
  parser->add_flag("--json", *json, "A JSON list instead, one object an op");
  return {parser, [json] {
            fmt::print("{}", *json ? ops_json() : ops_markdown());
            return job_done;
          }};
}

}  // namespace tensorgrad::tools
