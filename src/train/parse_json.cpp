#include "train/parse_json.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tensorgrad {
namespace {

using Json = nlohmann::ordered_json;

// Builds a value from what the parser finds. The library's own `parse` is there twice, once for
// callbacks, which makes the browser's module a hundredth larger.
class Builder {
 public:
  explicit Builder(Json& root) : root_(root) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string& /*text*/) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t& /*value*/) { return false; }
  bool start_object(std::size_t /*members*/) { return open(Json::object()); }
  bool start_array(std::size_t /*elements*/) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }
  static bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                          const Json::exception& /*error*/) {
    return false;
  }

 private:
  Json& place(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_object()) return parent[key_] = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    // What writes or copies a value calls itself for each level, until the stack is full.
    constexpr std::size_t deepest = 64;
    if (open_.size() == deepest) return false;
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json& root_;
  std::vector<Json*> open_;  // a container stays where it is while a part of it is open
  std::string key_;
};

}  // namespace

Json parse_json(std::string_view text) {
  Json root;
  Builder builder(root);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) root = Json::value_t::discarded;
  return root;
}

}  // namespace tensorgrad
