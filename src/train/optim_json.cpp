// Schedules and optimizers as JSON text, and back.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "tensorgrad/optim.h"
#include "train/optim_fields.h"
#include "train/parse_json.h"

namespace tensorgrad {

using Json = nlohmann::ordered_json;

namespace {

/// Schedules hold schedules; text from a file must not decide how deep the stack gets.
constexpr int max_depth = 32;

Json parsed(const char* what, std::string_view text, const Site& site) {
  Json json = parse_json(text);
  if (json.is_discarded()) {
    throw FormatError(fmt::format("{}: the text is not JSON: {:.60}", what, text), site);
  }
  return json;
}

std::string kind_of(const char* what, const Json& json, const Site& site) {
  if (!json.is_object() || !json.contains("kind") || !json["kind"].is_string()) {
    throw FormatError(
        fmt::format("{}: {:.60} is not an object with a \"kind\".", what, json.dump()), site);
  }
  return json["kind"].get<std::string>();
}

/// Members of an object, checked for type; what nobody asked for is an error.
class Reader {
 public:
  Reader(const char* what, const Json& json, const Site& site)
      : what_(what), json_(json), site_(site) {}

  const Json& member(const char* key) const {
    if (!json_.contains(key)) fail(key, "is missing");
    return json_[key];
  }
  double number(const char* key) const {
    if (!member(key).is_number()) fail(key, "is not a number");
    return member(key).get<double>();
  }
  bool boolean(const char* key) const {
    if (!member(key).is_boolean()) fail(key, "is not true or false");
    return member(key).get<bool>();
  }
  std::int64_t integer(const char* key) const { return as_integer(key, member(key)); }
  std::vector<std::int64_t> integers(const char* key) const {
    if (!member(key).is_array()) fail(key, "is not a list");
    std::vector<std::int64_t> out;
    for (const Json& item : member(key)) out.push_back(as_integer(key, item));
    return out;
  }
  /// Throws for any member but "kind" and these.
  template <class Keys>
  void only(const Keys& keys) const {
    for (const auto& [key, value] : json_.items()) {
      if (key == "kind") continue;
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) fail(key, "is unknown");
    }
  }

 private:
  std::int64_t as_integer(const char* key, const Json& value) const {
    if (!value.is_number_integer()) fail(key, "is not a whole number");
    return value.get<std::int64_t>();
  }
  [[noreturn]] void fail(std::string_view key, const char* why) const {
    throw FormatError(fmt::format("{}: \"{}\" {} in a \"{}\".", what_, key, why,
                                  json_["kind"].get<std::string>()),
                      site_);
  }

  const char* what_;
  const Json& json_;
  const Site& site_;
};

}  // namespace

/// Has access to a schedule's values.
struct ScheduleJson {
  static Json write(const Schedule& s) {
    switch (s.kind_) {
      case Schedule::Kind::constant:
        return s.first_;
      case Schedule::Kind::linear:
        return {{"kind", "linear"}, {"start", s.first_}, {"final", s.second_}, {"steps", s.steps_}};
      case Schedule::Kind::cosine:
        return {{"kind", "cosine"}, {"peak", s.first_}, {"final", s.second_}, {"steps", s.steps_}};
      case Schedule::Kind::warmup:
        return {{"kind", "warmup"}, {"steps", s.steps_}, {"after", write(s.after_[0])}};
      case Schedule::Kind::staircase:
        return {
            {"kind", "staircase"}, {"lr", s.first_}, {"factor", s.second_}, {"every", s.steps_}};
      case Schedule::Kind::multi_step:
        return {{"kind", "multi_step"},
                {"lr", s.first_},
                {"milestones", s.milestones_},
                {"factor", s.second_}};
      case Schedule::Kind::from_step:
        return {{"kind", "from_step"}, {"first", s.steps_}, {"after", write(s.after_[0])}};
    }
    throw ValueError("learning rate: the kind of schedule is unknown.");
  }

  static Schedule read(const Json& json, int depth, const Site& site) {
    if (json.is_number()) return {json.get<double>(), site};
    const std::string kind = kind_of("schedule", json, site);
    if (depth > max_depth) {
      throw FormatError(
          fmt::format("schedule: more than {} schedules lie in each other.", max_depth), site);
    }
    const Reader r("schedule", json, site);
    const auto take = [&](std::initializer_list<std::string_view> keys) { r.only(keys); };
    const auto after = [&] { return read(r.member("after"), depth + 1, site); };
    if (kind == "linear") {
      take({"start", "final", "steps"});
      return Schedule::linear(r.number("start"), r.number("final"), r.integer("steps"), site);
    }
    if (kind == "cosine") {
      take({"peak", "final", "steps"});
      return Schedule::cosine(r.number("peak"), r.number("final"), r.integer("steps"), site);
    }
    if (kind == "warmup") {
      take({"steps", "after"});
      return Schedule::warmup(r.integer("steps"), after(), site);
    }
    if (kind == "staircase") {
      take({"lr", "factor", "every"});
      return Schedule::staircase(r.number("lr"), r.number("factor"), r.integer("every"), site);
    }
    if (kind == "multi_step") {
      take({"lr", "milestones", "factor"});
      return Schedule::multi_step(r.number("lr"), r.integers("milestones"), r.number("factor"),
                                  site);
    }
    if (kind == "from_step") {
      take({"first", "after"});
      return Schedule::from_step(r.integer("first"), after(), site);
    }
    throw FormatError(fmt::format("schedule: there is no kind \"{}\".", kind), site);
  }
};

std::string to_string(const Schedule& schedule) { return ScheduleJson::write(schedule).dump(); }

Schedule Schedule::parse(std::string_view json, Site site) {
  return ScheduleJson::read(parsed("schedule", json, site), 1, site);
}

std::string to_string(const Optimizer& optimizer) {
  Json json;
  json["kind"] = optimizer_name(optimizer);
  visit_fields(optimizer, [&]<class T>(const char* key, const T& value) {
    if constexpr (std::is_same_v<T, Schedule>) {
      json[key] = ScheduleJson::write(value);
    } else {
      json[key] = value;
    }
  });
  return json.dump();
}

Optimizer parse_optimizer(std::string_view text, Site site) {
  const Json json = parsed("optimizer", text, site);
  const std::string kind = kind_of("optimizer", json, site);
  std::optional<Optimizer> out = default_optimizer(kind);
  if (!out) throw FormatError(fmt::format("optimizer: there is no kind \"{}\".", kind), site);
  const Reader r("optimizer", json, site);
  std::vector<std::string_view> keys;
  visit_fields(*out, [&]<class T>(const char* key, T& value) {
    keys.emplace_back(key);
    if (!json.contains(key)) return;
    if constexpr (std::is_same_v<T, Schedule>) {
      value = ScheduleJson::read(r.member(key), 1, site);
    } else if constexpr (std::is_same_v<T, bool>) {
      value = r.boolean(key);
    } else {
      value = r.number(key);
    }
  });
  r.only(keys);
  validate(*out, site);
  return *out;
}

}  // namespace tensorgrad
