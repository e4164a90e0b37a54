// The progress of a training: one line that is rewritten on a terminal, a line now and then
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "run.h"

namespace tensorgrad::tools {

/// "1:05", "2:00:07": minutes and seconds, and hours if there are any.
std::string clock_time(double seconds);
/// 12345.6 as "12,346".
std::string grouped_number(double value);

class Progress {
 public:
  /// Steps of the run before `first_step` are done already.
  Progress(const RunConfig& config, std::int64_t first_step);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Leaves a rewritten line on the screen, so that an error message starts on the next.
  ~Progress();

  /// After step number `step` (counted from 1), which took `seconds`. `mean` is of its epoch.
  void step(std::int64_t step, double seconds, const RunningMean& mean);
  /// Prints a line of its own; a rewritten line is cleared before.
  void line(const std::string& text);

 private:
  std::string describe(std::int64_t step, const RunningMean& mean) const;

  RunConfig config_;
  bool terminal_;
  bool open_ = false;  // whether the rewritten line is on the screen
  double seconds_ = 0;
  std::int64_t first_step_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace tensorgrad::tools
