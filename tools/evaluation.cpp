#include "evaluation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tensorgrad::tools {
namespace {

constexpr std::size_t classes = 10;
constexpr std::int64_t chunk = 500;  // bounds the memory of an evaluation

// A prediction from one row of logits.
struct Prediction {
  std::size_t predicted = 0;
  double log_sum = 0;  // log of the sum of e^logit
};

Prediction predict(std::span<const float> logits) {
  const auto top = std::ranges::max_element(logits);
  double sum = 0;
  for (const float z : logits) sum += std::exp(static_cast<double>(z) - *top);
  return {static_cast<std::size_t>(top - logits.begin()), *top + std::log(sum)};
}

}  // namespace

std::int64_t count_correct(std::span<const float> logits, std::span<const std::int32_t> labels) {
  const std::size_t width = logits.size() / std::max<std::size_t>(labels.size(), 1);
  std::int64_t correct = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = logits.subspan(i * width, width);
    if (std::ranges::max_element(row) - row.begin() == labels[i]) ++correct;
  }
  return correct;
}

Evaluation evaluate(Forward& forward, const LabelledImages& data, std::size_t most_wrong) {
  Evaluation result;
  result.images = data.count;
  result.confusion.assign(classes, std::vector<std::int64_t>(classes, 0));
  const auto pixels = static_cast<std::size_t>(data.height * data.width);
  double loss = 0;
  std::int64_t correct = 0;
  std::vector<std::pair<double, std::size_t>> wrong;  // confidence, image
  std::vector<int> predicted(static_cast<std::size_t>(data.count));
  for (std::int64_t first = 0; first < data.count; first += chunk) {
    std::vector<std::int64_t> indices(
        static_cast<std::size_t>(std::min(chunk, data.count - first)));
    std::iota(indices.begin(), indices.end(), first);
    const std::vector<float> logits =
        forward.run({{"images", gather_images(data, indices, pixel_scaling)}}).value();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto image = static_cast<std::size_t>(indices[i]);
      const auto row = std::span(logits).subspan(i * classes, classes);
      const std::size_t label = data.labels[image];
      const Prediction p = predict(row);
      loss += p.log_sum - row[label];
      ++result.confusion[label][p.predicted];
      predicted[image] = static_cast<int>(p.predicted);
      if (p.predicted == label) {
        ++correct;
      } else {
        wrong.emplace_back(std::exp(row[p.predicted] - p.log_sum), image);
      }
    }
  }
  result.loss = loss / static_cast<double>(data.count);
  result.accuracy = static_cast<double>(correct) / static_cast<double>(data.count);
  std::ranges::sort(wrong, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  wrong.resize(std::min(wrong.size(), most_wrong));
  for (const auto& [confidence, image] : wrong) {
    const auto bytes = std::span(data.images).subspan(image * pixels, pixels);
    result.wrong.push_back(
        {{bytes.begin(), bytes.end()}, data.labels[image], predicted[image], confidence});
  }
  return result;
}

}  // namespace tensorgrad::tools
