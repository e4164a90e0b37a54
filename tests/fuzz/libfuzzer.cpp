// libFuzzer's entry point for all parsers:
//   tensorgrad_parse_fuzz --parser=NAME [libFuzzer's options] [CORPUS]
//   tensorgrad_parse_fuzz --seeds=FOLDER    writes the seeds of each parser to FOLDER/NAME
//   tensorgrad_parse_fuzz --list
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "fuzz/parsers.h"
#include "tensorgrad/error.h"

namespace {

using tensorgrad::fuzz::Parser;

const Parser*& chosen() {
  static const Parser* parser = nullptr;
  return parser;
}

void write_seeds(const std::filesystem::path& folder) {
  for (const Parser& parser : tensorgrad::fuzz::parsers()) {
    std::filesystem::create_directories(folder / parser.name);
    int number = 0;
    for (const auto& seed : parser.seeds()) {
      std::ofstream file(folder / parser.name / std::to_string(number++), std::ios::binary);
      file.write(reinterpret_cast<const char*>(seed.data()),
                 static_cast<std::streamsize>(seed.size()));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(const int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = (*argv)[i];
    if (argument == "--list") {
      for (const Parser& p : tensorgrad::fuzz::parsers()) std::puts(std::string(p.name).c_str());
      std::exit(0);
    }
    if (argument.starts_with("--seeds=")) {
      write_seeds(argument.substr(8));
      std::exit(0);
    }
    for (const Parser& p : tensorgrad::fuzz::parsers()) {
      if (argument == "--parser=" + std::string(p.name)) chosen() = &p;
    }
  }
  if (chosen() == nullptr) {
    std::fputs("--parser=NAME is missing or unknown; --list names them\n", stderr);
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    chosen()->parse(std::as_bytes(std::span(data, size)));
  } catch (const tensorgrad::Error&) {
    return 0;
  }
  return 0;
}
