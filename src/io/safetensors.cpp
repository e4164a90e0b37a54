// The safetensors format: 8 bytes of header length, a JSON header, and the bytes of the tensors.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "io/safetensors_header.h"
#include "tensorgrad/io.h"

namespace tensorgrad {

static_assert(std::endian::native == std::endian::little,
              "tensors are stored and held in memory as little-endian");

namespace {

constexpr std::uint64_t max_header_bytes = 100'000'000;
constexpr std::size_t length_bytes = 8;

struct SafeDType {
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<SafeDType, 15> dtypes{{{"BOOL", 1},
                                            {"U8", 1},
                                            {"I8", 1},
                                            {"F8_E4M3", 1},
                                            {"F8_E5M2", 1},
                                            {"I16", 2},
                                            {"U16", 2},
                                            {"F16", 2},
                                            {"BF16", 2},
                                            {"I32", 4},
                                            {"U32", 4},
                                            {"F32", 4},
                                            {"F64", 8},
                                            {"I64", 8},
                                            {"U64", 8}}};

std::optional<std::size_t> find_dtype_bytes(std::string_view dtype) {
  const auto* row = std::ranges::find(dtypes, dtype, &SafeDType::name);
  if (row == dtypes.end()) return std::nullopt;
  return row->bytes;
}

// Bytes of a tensor, or nothing if an extent is negative or the product does not fit.
std::optional<std::uint64_t> checked_bytes(const Shape& shape, std::size_t element_bytes) {
  constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max();
  std::uint64_t total = element_bytes;
  bool empty = false;
  // An extent of 0 does not excuse the others: [0, 2^40, 2^40] has no strides that fit.
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      empty = true;
      continue;
    }
    if (total > limit / static_cast<std::uint64_t>(extent)) return std::nullopt;
    total *= static_cast<std::uint64_t>(extent);
  }
  return empty ? 0 : total;
}

// The sentence's start, common to all errors about one tensor.
std::string about(const std::string& source, std::string_view tensor) {
  return fmt::format("{}: tensor {}", source, quote(tensor));
}

// Size of the tensor by its dtype and shape, both checked.
std::uint64_t expected_bytes(const std::string& prefix, std::string_view dtype,
                             const Shape& shape) {
  const std::optional<std::size_t> element_bytes = find_dtype_bytes(dtype);
  if (!element_bytes) {
    throw FormatError(fmt::format("{} has the unknown dtype {}.", prefix, quote(dtype)));
  }
  const std::optional<std::uint64_t> bytes = checked_bytes(shape, *element_bytes);
  if (!bytes) {
    throw FormatError(fmt::format(
        "{} has the shape {} of {}, whose size in bytes is {}.", prefix, to_string(shape), dtype,
        std::ranges::any_of(shape, [](auto n) { return n < 0; }) ? "negative" : "beyond 64 bits"));
  }
  return *bytes;
}

// Sizes, bounds, and that the tensors tile the data without gap or overlap.
void check_layout(const std::vector<HeaderEntry>& entries, std::uint64_t data_bytes,
                  const std::string& source) {
  std::vector<const HeaderEntry*> by_offset;
  by_offset.reserve(entries.size());
  for (const HeaderEntry& entry : entries) {
    const std::string prefix = about(source, entry.name);
    const std::uint64_t expected = expected_bytes(prefix, entry.dtype, entry.shape);
    if (entry.begin > entry.end) {
      throw FormatError(fmt::format("{} has the data_offsets [{}, {}], which are reversed.", prefix,
                                    entry.begin, entry.end));
    }
    if (entry.end > data_bytes) {
      throw FormatError(
          fmt::format("{} has the data_offsets [{}, {}], beyond the {} bytes of data.", prefix,
                      entry.begin, entry.end, data_bytes));
    }
    if (entry.end - entry.begin != expected) {
      throw FormatError(fmt::format("{} has {} bytes of data, but {} of shape {} takes {}.", prefix,
                                    entry.end - entry.begin, entry.dtype, to_string(entry.shape),
                                    expected));
    }
    by_offset.push_back(&entry);
  }
  std::ranges::sort(by_offset, [](const HeaderEntry* a, const HeaderEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t covered = 0;
  for (const HeaderEntry* entry : by_offset) {
    if (entry->begin < covered) {
      throw FormatError(
          fmt::format("{} starts at byte {} of the data and overlaps another tensor, "
                      "which ends at byte {}.",
                      about(source, entry->name), entry->begin, covered));
    }
    if (entry->begin > covered) {
      throw FormatError(
          fmt::format("{} starts at byte {} of the data; no tensor holds the bytes "
                      "from {} to there.",
                      about(source, entry->name), entry->begin, covered));
    }
    covered = entry->end;
  }
  if (covered != data_bytes) {
    throw FormatError(fmt::format("{}: no tensor holds the last {} of {} bytes of data.", source,
                                  data_bytes - covered, data_bytes));
  }
}

SafeTensors parse_owned(std::vector<std::byte> bytes, const std::string& source) {
  const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  const std::span<const std::byte> file(*owner);
  if (file.size() < length_bytes) {
    throw FormatError(fmt::format(
        "{}: the file has {} bytes; a safetensors file starts with 8 bytes of header length.",
        source, file.size()));
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), length_bytes);
  if (header_bytes > max_header_bytes) {
    throw FormatError(fmt::format("{}: the header length is {} bytes, more than the {} allowed.",
                                  source, header_bytes, max_header_bytes));
  }
  if (header_bytes > file.size() - length_bytes) {
    throw FormatError(fmt::format("{}: the header length is {} bytes, but {} follow it.", source,
                                  header_bytes, file.size() - length_bytes));
  }
  const auto header_span = file.subspan(length_bytes, header_bytes);
  const auto data = file.subspan(length_bytes + header_bytes);
  Header header = parse_header(
      std::string_view(reinterpret_cast<const char*>(header_span.data()), header_span.size()),
      source);
  check_layout(header.entries, data.size(), source);

  SafeTensors result;
  result.metadata = std::move(header.metadata);
  result.tensors.reserve(header.entries.size());
  for (HeaderEntry& entry : header.entries) {
    result.tensors.push_back({std::move(entry.name), std::move(entry.dtype), std::move(entry.shape),
                              data.subspan(entry.begin, entry.end - entry.begin), owner});
  }
  return result;
}

// Tensors in the order in which they are written.
std::vector<const SafeTensor*> checked_and_sorted(const SafeTensors& contents,
                                                  const std::string& source) {
  std::vector<const SafeTensor*> sorted;
  std::unordered_set<std::string_view> names;
  for (const SafeTensor& tensor : contents.tensors) {
    const std::string prefix = about(source, tensor.name);
    if (tensor.name == "__metadata__") {
      throw FormatError(fmt::format("{} has a name that the format reserves.", prefix));
    }
    if (!names.insert(tensor.name).second) {
      throw FormatError(fmt::format("{} is given twice.", prefix));
    }
    const std::uint64_t expected = expected_bytes(prefix, tensor.dtype, tensor.shape);
    if (tensor.bytes.size() != expected) {
      throw FormatError(fmt::format("{} has {} bytes of data, but {} of shape {} takes {}.", prefix,
                                    tensor.bytes.size(), tensor.dtype, to_string(tensor.shape),
                                    expected));
    }
    sorted.push_back(&tensor);
  }
  std::ranges::sort(sorted, [](const SafeTensor* a, const SafeTensor* b) {
    const std::size_t a_bytes = *find_dtype_bytes(a->dtype);
    const std::size_t b_bytes = *find_dtype_bytes(b->dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a->name < b->name;
  });
  return sorted;
}

std::string json_string(const std::string& text, const std::string& source) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw FormatError(fmt::format("{}: the text {} is not valid UTF-8.", source, quote(text)));
  }
}

std::string format_header(const SafeTensors& contents,
                          const std::vector<const SafeTensor*>& tensors,
                          const std::string& source) {
  std::string header = "{";
  if (!contents.metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : contents.metadata) {
      header += fmt::format("{}:{},", json_string(key, source), json_string(value, source));
    }
    header.back() = '}';
    header += ',';
  }
  std::uint64_t offset = 0;
  for (const SafeTensor* tensor : tensors) {
    std::string shape;
    for (const std::int64_t extent : tensor->shape) {
      shape += fmt::format("{}{}", shape.empty() ? "" : ",", extent);
    }
    header += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)",
                          json_string(tensor->name, source), tensor->dtype, shape, offset,
                          offset + tensor->bytes.size());
    offset += tensor->bytes.size();
  }
  if (header.back() == ',') header.pop_back();
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > max_header_bytes) {
    throw FormatError(fmt::format("{}: the header takes {} bytes, more than the {} allowed.",
                                  source, header.size(), max_header_bytes));
  }
  return header;
}

}  // namespace

const SafeTensor* SafeTensors::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &SafeTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

const SafeTensor& SafeTensors::at(std::string_view name) const {
  if (const SafeTensor* tensor = find(name)) return *tensor;
  constexpr std::size_t listed = 20;
  std::string present;
  for (std::size_t i = 0; i < std::min(tensors.size(), listed); ++i) {
    present += (i == 0 ? "" : ", ") + quote(tensors[i].name);
  }
  if (tensors.size() > listed) present += fmt::format(" and {} more", tensors.size() - listed);
  throw FormatError(fmt::format("There is no tensor {}; the file holds {}.", quote(name),
                                tensors.empty() ? "none" : present));
}

std::size_t safetensors_dtype_bytes(std::string_view dtype) {
  if (const auto bytes = find_dtype_bytes(dtype)) return *bytes;
  throw FormatError(fmt::format("The safetensors format has no dtype {}.", quote(dtype)));
}

SafeTensors read_safetensors(const std::filesystem::path& path) {
  return parse_owned(read_file(path), path.string());
}

SafeTensors parse_safetensors(std::span<const std::byte> bytes, const std::string& source) {
  return parse_owned({bytes.begin(), bytes.end()}, source);
}

void write_safetensors(const std::filesystem::path& path, const SafeTensors& contents) {
  const std::string source = path.string();
  const std::vector<const SafeTensor*> tensors = checked_and_sorted(contents, source);
  const std::string header = format_header(contents, tensors, source);
  const std::uint64_t header_bytes = header.size();
  std::vector<std::span<const std::byte>> parts;
  parts.reserve(tensors.size() + 2);
  parts.push_back(std::as_bytes(std::span(&header_bytes, 1)));
  parts.push_back(std::as_bytes(std::span(header)));
  for (const SafeTensor* tensor : tensors) parts.push_back(tensor->bytes);
  write_file_atomically(path, parts);
}

}  // namespace tensorgrad
