#include "command.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "runtime/device.h"

namespace tensorgrad::tools {

void add_device_option(CLI::App& parser, std::string& device) {
  std::vector<std::string> known{"auto"};
  for (const Backend& backend : backends()) known.push_back(backend.name);
  known.emplace_back("reference");
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  parser
      .add_option("--device", device,
                  fmt::format("Where to compute: {} (default: {})", names, device))
      ->type_name("NAME")
      ->check([known, names](const std::string& name) -> std::string {
        if (std::ranges::find(known, name) != known.end()) return {};
        return fmt::format("There is no device \"{}\"; the known ones are {}.", name, names);
      });
}

void add_data_option(CLI::App& parser, std::string& folder) {
  parser.add_option("--data", folder, fmt::format("Folder of the IDX files (default: {})", folder))
      ->type_name("DIR");
}

}  // namespace tensorgrad::tools
