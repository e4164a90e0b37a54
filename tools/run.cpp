#include "run.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tensorgrad/error.h"
#include "tensorgrad/io.h"

namespace tensorgrad::tools {
namespace {

using Json = nlohmann::json;

struct Column {
  const char* name;
  std::optional<double> Metrics::* field;
};
constexpr Column columns[] = {{"train_loss", &Metrics::train_loss},
                              {"train_accuracy", &Metrics::train_accuracy},
                              {"test_loss", &Metrics::test_loss},
                              {"test_accuracy", &Metrics::test_accuracy},
                              {"images_per_second", &Metrics::images_per_second}};

Json to_json(const std::vector<Metrics>& rows) {
  Json list = Json::array();
  for (const Metrics& row : rows) {
    Json entry{{"step", row.step}, {"epoch", row.epoch}};
    for (const Column& c : columns) {
      if (row.*c.field) entry[c.name] = *(row.*c.field);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

std::vector<Metrics> metrics_from(const Json& list) {
  std::vector<Metrics> rows;
  for (const Json& entry : list) {
    Metrics row;
    row.step = entry.at("step").get<std::int64_t>();
    row.epoch = entry.at("epoch").get<std::int64_t>();
    for (const Column& c : columns) {
      if (entry.contains(c.name)) row.*c.field = entry.at(c.name).get<double>();
    }
    rows.push_back(row);
  }
  return rows;
}

Json to_json(const RunningMean& m) {
  return {{"loss", m.loss}, {"correct", m.correct}, {"images", m.images}, {"steps", m.steps}};
}

RunningMean running_from(const Json& j) {
  return {j.at("loss").get<double>(), j.at("correct").get<std::int64_t>(),
          j.at("images").get<std::int64_t>(), j.at("steps").get<std::int64_t>()};
}

// Reads metadata entries, and says which one is missing or wrong.
class Entries {
 public:
  Entries(const std::map<std::string, std::string>& entries, const std::filesystem::path& path)
      : entries_(entries), path_(path) {}

  const std::string& text(const std::string& key) const {
    const auto it = entries_.find(key);
    if (it == entries_.end()) {
      throw FormatError(
          fmt::format("{}: the metadata has no entry `{}`, so it is not a run of "
                      "`tensorgrad train`.",
                      path_.string(), key));
    }
    return it->second;
  }

  template <class T>
  T number(const std::string& key, T least) const {
    const std::string& value = text(key);
    T result{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() || !(result >= least)) {
      throw FormatError(
          fmt::format("{}: the metadata entry `{}` is \"{}\", not a number of at "
                      "least {}.",
                      path_.string(), key, value, least));
    }
    return result;
  }

 private:
  const std::map<std::string, std::string>& entries_;
  const std::filesystem::path& path_;
};

}  // namespace

Optimizer optimizer_of(const RunConfig& config) {
  const std::int64_t total = std::max<std::int64_t>(config.total_steps(), 2);
  const std::int64_t warm_up = std::clamp<std::int64_t>(total / 20, 1, 200);
  return AdamW{.lr = Schedule::warmup(
                   warm_up, Schedule::cosine(config.lr, config.lr / 100, total - warm_up))};
}

void RunningMean::add(double step_loss, std::int64_t step_correct, std::int64_t step_images) {
  loss += step_loss;
  correct += step_correct;
  images += step_images;
  ++steps;
}

std::vector<Metrics> History::all() const {
  std::vector<Metrics> rows = steps;
  rows.insert(rows.end(), epochs.begin(), epochs.end());
  std::ranges::stable_sort(rows, {}, &Metrics::step);
  return rows;
}

void RunFolder::prepare(std::size_t bytes) const {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    throw FormatError(
        fmt::format("The folder {} cannot be made: {}.", path.string(), error.message()));
  }
  const std::filesystem::path probe = path / ".space";
  const std::vector<std::byte> zeros(bytes);
  const std::span<const std::byte> part(zeros);
  write_file_atomically(probe, std::span(&part, 1));
  std::filesystem::remove(probe, error);
}

std::map<std::string, std::string> to_metadata(const RunConfig& config, const History& history,
                                               const std::string& device, std::int64_t step) {
  const Json measured{{"steps", to_json(history.steps)},
                      {"epochs", to_json(history.epochs)},
                      {"epoch", to_json(history.epoch)},
                      {"window", to_json(history.window)},
                      {"seconds", history.seconds}};
  return {{"dataset", config.dataset},
          {"model", config.model},
          {"epochs", fmt::format("{}", config.epochs)},
          {"batch", fmt::format("{}", config.batch)},
          {"lr", fmt::format("{}", config.lr)},
          {"train_images", fmt::format("{}", config.train_images)},
          {"device", device},
          {"epoch", fmt::format("{}", step / config.steps_per_epoch())},
          {"epoch_batch", fmt::format("{}", step % config.steps_per_epoch())},
          {"history", measured.dump()}};
}

RunRecord read_run(const RunFolder& folder) {
  const std::filesystem::path path = folder.model();
  std::error_code unreadable;
  if (!std::filesystem::exists(path, unreadable)) {
    throw FormatError(
        fmt::format("There is no run in {}: it has no model.safetensors.", folder.path.string()));
  }
  const SafeTensors file = read_safetensors(path);
  const Entries entries(file.metadata, path);
  RunRecord run;
  run.config.dataset = entries.text("dataset");
  run.config.model = entries.text("model");
  run.config.epochs = entries.number<std::int64_t>("epochs", 1);
  run.config.batch = entries.number<std::int64_t>("batch", 1);
  run.config.lr = entries.number<double>("lr", 0);
  run.config.seed = entries.number<std::uint64_t>("seed", 0);
  run.config.train_images = entries.number("train_images", run.config.batch);
  run.device = entries.text("device");
  run.step = entries.number<std::int64_t>("step", 0);
  run.optimizer = parse_optimizer(entries.text("optimizer"));
  try {
    const Json measured = Json::parse(entries.text("history"));
    run.history.steps = metrics_from(measured.at("steps"));
    run.history.epochs = metrics_from(measured.at("epochs"));
    run.history.epoch = running_from(measured.at("epoch"));
    run.history.window = running_from(measured.at("window"));
    run.history.seconds = measured.at("seconds").get<double>();
  } catch (const Json::exception& error) {
    throw FormatError(fmt::format("{}: the metadata entry `history` is damaged: {}.", path.string(),
                                  error.what()));
  }
  return run;
}

void check_same_run(const RunConfig& saved, const RunConfig& asked, const RunFolder& folder) {
  std::string differences;
  const auto compare = [&](const char* what, const auto& was, const auto& is) {
    if (was == is) return;
    differences += fmt::format("{}{} {}, not {}", differences.empty() ? "" : ", ", what, was, is);
  };
  compare("data set", saved.dataset, asked.dataset);
  compare("model", saved.model, asked.model);
  compare("--epochs", saved.epochs, asked.epochs);
  compare("--batch", saved.batch, asked.batch);
  compare("--lr", saved.lr, asked.lr);
  compare("--seed", saved.seed, asked.seed);
  compare("number of training images", saved.train_images, asked.train_images);
  if (differences.empty()) return;
  throw ValueError(
      fmt::format("The run in {} has {}: resume it as it was started, or choose "
                  "another --out.",
                  folder.path.string(), differences));
}

}  // namespace tensorgrad::tools
