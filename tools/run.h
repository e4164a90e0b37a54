// A training run in a folder: what was asked for, how far it is, and where its files are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report.h"
#include "tensorgrad/optim.h"

namespace tensorgrad::tools {

/// What decides the result of a run.
struct RunConfig {
  std::string dataset = "fashion-mnist";
  std::string model = "cnn";
  std::int64_t epochs = 0;
  std::int64_t batch = 0;
  double lr = 0;  ///< the highest learning rate
  std::uint64_t seed = 0;
  std::int64_t train_images = 0;

  std::int64_t steps_per_epoch() const { return train_images / batch; }
  std::int64_t total_steps() const { return epochs * steps_per_epoch(); }
  bool operator==(const RunConfig&) const = default;
};

/// AdamW under a warm-up and half a cosine over the whole run.
Optimizer optimizer_of(const RunConfig& config);

/// Sums over the steps since they were last cleared.
struct RunningMean {
  double loss = 0;
  std::int64_t correct = 0;
  std::int64_t images = 0;
  std::int64_t steps = 0;

  void add(double step_loss, std::int64_t step_correct, std::int64_t step_images);
  double mean_loss() const { return loss / static_cast<double>(steps); }
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(images); }
};

/// What a run has measured so far.
struct History {
  std::vector<Metrics> steps, epochs;
  RunningMean epoch;   ///< of the epoch that is not finished
  RunningMean window;  ///< of the steps since the last entry of `steps`
  double seconds = 0;  ///< spent in the steps of `epoch`
  /// All measurements by step, for metrics.csv.
  std::vector<Metrics> all() const;
};

/// Where a run keeps its files.
struct RunFolder {
  std::filesystem::path path;
  std::filesystem::path model() const { return path / "model.safetensors"; }
  std::filesystem::path metrics() const { return path / "metrics.csv"; }
  std::filesystem::path report() const { return path / "report.html"; }
  /// Makes the folder and writes a file of so many bytes to it, which is removed again. Throws
  /// FormatError, with the system's reason, if either fails.
  void prepare(std::size_t bytes) const;
};

/// The metadata of a checkpoint.
std::map<std::string, std::string> to_metadata(const RunConfig& config, const History& history,
                                               const std::string& device, std::int64_t step);

/// What a checkpoint says of its run.
struct RunRecord {
  RunConfig config;
  History history;
  Optimizer optimizer;
  std::string device;
  std::int64_t step = 0;
};
/// Reads the metadata of a run's checkpoint. Throws FormatError if there is none, or it is damaged
/// or not of a run of this command.
RunRecord read_run(const RunFolder& folder);

/// Throws ValueError, naming every difference, if a run was asked for that is not the saved one.
void check_same_run(const RunConfig& saved, const RunConfig& asked, const RunFolder& folder);

}  // namespace tensorgrad::tools
