// `tensorgrad devices`: where this build can compute.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "runtime/device.h"
#include "tensorgrad/error.h"

namespace tensorgrad::tools {
namespace {

struct Row {
  DeviceInfo info;
  std::string reason;  // why it is not usable; empty if it is
};

std::vector<Row> list_devices() {
  std::vector<Row> rows;
  for (const Backend& backend : backends()) {
    Row row;
    row.info.name = backend.name;
    row.reason = backend.unavailable();
    if (row.reason.empty()) {
      try {
        row.info = open_device(backend.name)->info();
      } catch (const DeviceError& error) {
        row.reason = error.what();
      }
    }
    rows.push_back(std::move(row));
  }
  rows.push_back({{"reference",
                   "interprets a graph op by op in double precision: exact and slow, to compare "
                   "with",
                   {}},
                  {}});
  return rows;
}

// The device that "auto" stands for; "" if there is none.
std::string automatic() {
  try {
    return open_device("auto")->info().name;
  } catch (const DeviceError&) {
    return {};
  }
}

int print_devices(bool json) {
  const std::vector<Row> rows = list_devices();
  const std::string chosen = automatic();
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Row& row : rows) {
      nlohmann::ordered_json entry{{"name", row.info.name}, {"usable", row.reason.empty()}};
      if (row.reason.empty()) {
        entry["description"] = row.info.description;
        nlohmann::ordered_json details = nlohmann::ordered_json::object();
        for (const auto& [key, value] : row.info.details) details[key] = value;
        entry["details"] = std::move(details);
      } else {
        entry["reason"] = row.reason;
      }
      list.push_back(std::move(entry));
    }
    nlohmann::ordered_json all{{"devices", std::move(list)}};
    all["auto"] = chosen.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(chosen);
    fmt::print("{}\n", all.dump(2));
    return job_done;
  }
  for (const Row& row : rows) {
    fmt::print("{}{}\n", row.info.name, row.info.name == chosen ? "  (what `auto` takes)" : "");
    if (!row.reason.empty()) {
      fmt::print("  not usable: {}\n", row.reason);
      continue;
    }
    fmt::print("  {}\n", row.info.description);
    for (const auto& [key, value] : row.info.details) fmt::print("  {}: {}\n", key, value);
  }
  return job_done;
}

}  // namespace

Subcommand add_devices(CLI::App& parent) {
  CLI::App* parser = parent.add_subcommand(
      "devices", "Lists where models can run here, with limits, and why something cannot be used.");
  const auto json = std::make_shared<bool>(false);
  parser->add_flag("--json", *json, "One JSON object with `devices` (a list) and `auto`");
  return {parser, [json] { return print_devices(*json); }};
}

}  // namespace tensorgrad::tools
