#include "codegen/wgsl/writer.h"

#include <fmt/format.h>

#include <utility>

namespace tensorgrad::wgsl {

Writer::Writer() { blocks_.emplace_back(); }

void Writer::line(int depth, std::string_view statement) {
  blocks_[static_cast<std::size_t>(depth)].lines.emplace_back(statement);
}

std::string Writer::let(int depth, std::string_view value) {
  std::string name = fmt::format("t{}", next_name_++);
  line(depth, fmt::format("let {} = {};", name, value));
  return name;
}

std::string Writer::var(int depth, std::string_view value) {
  std::string name = fmt::format("t{}", next_name_++);
  line(depth, fmt::format("var {} = {};", name, value));
  return name;
}

void Writer::open(std::string_view header) {
  Block block;
  block.serial = next_serial_++;
  block.lines.push_back(header.empty() ? "{" : fmt::format("{} {{", header));
  blocks_.push_back(std::move(block));
}

void Writer::close() {
  Block block = std::move(blocks_.back());
  blocks_.pop_back();
  std::vector<std::string>& lines = blocks_.back().lines;
  lines.push_back(std::move(block.lines.front()));
  for (std::size_t i = 1; i < block.lines.size(); ++i) lines.push_back("  " + block.lines[i]);
  lines.emplace_back("}");
}

std::string Writer::text() const {
  std::string result;
  for (const std::string& l : blocks_.front().lines) result += "  " + l + "\n";
  return result;
}

}  // namespace tensorgrad::wgsl
