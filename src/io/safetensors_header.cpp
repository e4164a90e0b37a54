// Parses the header as a stream of events, so that duplicate names are seen, and hostile text is
// refused at its first wrong token instead of being built up in memory.
#include "io/safetensors_header.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

namespace tensorgrad {
namespace {

using Json = nlohmann::json;

constexpr std::string_view metadata_name = "__metadata__";

// Event handler of the parser. Every method throws where the structure is wrong, so nesting never
// goes deeper than the format's three levels.
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(const std::string& source) : source_(source) {}

  Header take() { return std::move(header_); }

  bool null() override { return wrong("null"); }
  bool boolean(bool value) override { return wrong(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override {
    if (!in_array() || value < 0) return wrong(fmt::format("{}", value));
    return number(static_cast<std::uint64_t>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array()) return wrong(fmt::format("{}", value));
    return number(value);
  }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    return wrong(fmt::format("the number {}", quote(text)));
  }
  bool string(string_t& value) override {
    switch (place_) {
      case Place::metadata_value:
        header_.metadata.emplace(key_, std::move(value));
        place_ = Place::metadata_key;
        return true;
      case Place::dtype:
        header_.entries.back().dtype = std::move(value);
        place_ = Place::field;
        return true;
      default:
        return wrong(fmt::format("the string {}", quote(value)));
    }
  }
  bool binary(binary_t& /*value*/) override { return wrong("binary data"); }

  bool start_object(std::size_t /*size*/) override {
    switch (place_) {
      case Place::start:
        place_ = Place::name;
        return true;
      case Place::metadata:
        place_ = Place::metadata_key;
        return true;
      case Place::tensor:
        header_.entries.push_back({.name = key_, .dtype = {}, .shape = {}});
        seen_fields_.clear();
        place_ = Place::field;
        return true;
      default:
        return wrong("an object");
    }
  }
  bool key(string_t& key) override {
    switch (place_) {
      case Place::name:
        if (!names_.insert(key).second) fail(fmt::format("{} appears twice", quote(key)));
        place_ = key == metadata_name ? Place::metadata : Place::tensor;
        key_ = std::move(key);
        return true;
      case Place::metadata_key:
        if (header_.metadata.contains(key)) {
          fail(fmt::format("the metadata key {} appears twice", quote(key)));
        }
        key_ = std::move(key);
        place_ = Place::metadata_value;
        return true;
      default:  // Place::field: keys occur in no other object
        return field(key);
    }
  }
  bool end_object() override {
    switch (place_) {
      case Place::field:
        for (const std::string_view name : {"dtype", "shape", "data_offsets"}) {
          if (!seen_fields_.contains(std::string(name))) {
            fail(fmt::format("tensor {} has no {}", quote(entry_name()), name));
          }
        }
        [[fallthrough]];
      case Place::metadata_key:
        place_ = Place::name;
        return true;
      default:  // Place::name: the header itself ends
        place_ = Place::end;
        return true;
    }
  }
  bool start_array(std::size_t /*size*/) override {
    if (place_ == Place::shape) {
      place_ = Place::extent;
    } else if (place_ == Place::offsets) {
      place_ = Place::offset;
      offset_count_ = 0;
    } else {
      return wrong("an array");
    }
    return true;
  }
  bool end_array() override {
    if (place_ == Place::offset && offset_count_ != 2) {
      fail(fmt::format("tensor {} has {} data_offsets instead of 2", quote(entry_name()),
                       offset_count_));
    }
    place_ = Place::field;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& last_token,
                   const Json::exception& /*error*/) override {
    fail(
        fmt::format("it is not valid UTF-8 JSON at byte {}, near {}", position, quote(last_token)));
  }

 private:
  // Which value or key comes next.
  enum class Place : std::uint8_t {
    start,
    name,
    metadata,
    metadata_key,
    metadata_value,
    tensor,
    field,
    dtype,
    shape,
    extent,
    offsets,
    offset,
    end
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(fmt::format("{}: the header is not valid: {}.", source_, what));
  }

  bool in_array() const { return place_ == Place::extent || place_ == Place::offset; }
  const std::string& entry_name() const { return header_.entries.back().name; }

  bool wrong(const std::string& found) const {
    switch (place_) {
      case Place::metadata:
        fail(fmt::format("__metadata__ is {} instead of an object", found));
      case Place::metadata_value:
        fail(fmt::format("the metadata of key {} is {} instead of a string", quote(key_), found));
      case Place::tensor:
        fail(fmt::format("tensor {} is described by {} instead of an object", quote(key_), found));
      case Place::dtype:
        fail(fmt::format("the dtype of tensor {} is {} instead of a string", quote(entry_name()),
                         found));
      case Place::shape:
        fail(fmt::format("the shape of tensor {} is {} instead of an array", quote(entry_name()),
                         found));
      case Place::offsets:
        fail(fmt::format("the data_offsets of tensor {} are {} instead of an array",
                         quote(entry_name()), found));
      case Place::extent:
        fail(fmt::format("the shape of tensor {} contains {}, which is not a size",
                         quote(entry_name()), found));
      case Place::offset:
        fail(fmt::format("the data_offsets of tensor {} contain {}, which is not an offset",
                         quote(entry_name()), found));
      default:
        fail(fmt::format("it is {} instead of an object", found));
    }
  }

  bool number(std::uint64_t value) {
    HeaderEntry& entry = header_.entries.back();
    if (place_ == Place::offset) {
      if (offset_count_ < 2) (offset_count_ == 0 ? entry.begin : entry.end) = value;
      ++offset_count_;
      return true;
    }
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return wrong(fmt::format("{}", value));
    }
    entry.shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool field(const std::string& name) {
    if (name == "dtype") {
      place_ = Place::dtype;
    } else if (name == "shape") {
      place_ = Place::shape;
    } else if (name == "data_offsets") {
      place_ = Place::offsets;
    } else {
      fail(fmt::format("tensor {} has the unknown field {}", quote(entry_name()), quote(name)));
    }
    if (!seen_fields_.insert(name).second) {
      fail(fmt::format("tensor {} has two fields {}", quote(entry_name()), quote(name)));
    }
    return true;
  }

  std::string source_;
  Header header_;
  Place place_ = Place::start;
  std::string key_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> seen_fields_;
  std::uint64_t offset_count_ = 0;
};

}  // namespace

std::string quote(std::string_view text) {
  constexpr std::size_t shown = 100;
  const std::string start(text.substr(0, shown));
  std::string result = Json(start).dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > shown) result += "...";
  return result;
}

Header parse_header(std::string_view text, const std::string& source) {
  if (!text.starts_with('{')) {
    throw FormatError(fmt::format("{}: the header starts with {} instead of {{.", source,
                                  text.empty() ? "nothing" : quote(text.substr(0, 1))));
  }
  // The parser takes a zero byte for the end of its input and would not look at what follows.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw FormatError(fmt::format("{}: the header has a zero byte at its byte {}.", source, zero));
  }
  HeaderHandler handler(source);
  Json::sax_parse(text, &handler);
  return handler.take();
}

}  // namespace tensorgrad
