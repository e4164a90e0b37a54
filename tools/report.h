// The report of a training run: one HTML file that needs nothing else, and a CSV file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tensorgrad::tools {

/// Measurements after a step or an epoch; those that were not taken are empty. Accuracies are
/// fractions from 0 to 1.
struct Metrics {
  std::int64_t step = 0;   ///< optimizer steps so far
  std::int64_t epoch = 0;  ///< the epoch it belongs to
  std::optional<double> train_loss;
  std::optional<double> train_accuracy;
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;
  std::optional<double> images_per_second;
};

/// A test image that the model gets wrong.
struct WrongPrediction {
  std::vector<std::uint8_t> image;  ///< 28 by 28 grey bytes, row by row
  int label = 0;
  int predicted = 0;
  double confidence = 0;  ///< probability of the predicted class, 0 to 1
};

/// All that a report shows.
struct Report {
  std::string title;
  std::vector<std::pair<std::string, std::string>> configuration;  ///< shown in this order
  std::vector<Metrics> steps;
  std::vector<Metrics> epochs;
  std::vector<std::string> class_names;
  std::vector<std::vector<std::int64_t>> confusion;  ///< counts, [true class][predicted class]
  std::vector<WrongPrediction> wrong;
};

/// The report as an HTML page without scripts or references to other resources. Parts of which the
/// report has no data are left out. Throws ValueError if the confusion matrix is neither empty nor
/// square over the classes, or a wrong prediction has no 28 by 28 image or unknown labels.
std::string render_report(const Report& report);

/// Writes `render_report` to a file, which is replaced at once. Throws FormatError if that fails.
void write_report(const std::filesystem::path& path, const Report& report);

/// Metrics as CSV: a line of column names, then a line each; what was not measured is empty.
std::string render_metrics_csv(std::span<const Metrics> metrics);

/// Writes `render_metrics_csv` to a file, which is replaced at once. Throws FormatError if that
/// fails.
void write_metrics_csv(const std::filesystem::path& path, std::span<const Metrics> metrics);

}  // namespace tensorgrad::tools
