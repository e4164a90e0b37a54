#include "progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tensorgrad::tools {
namespace {

std::size_t terminal_width() {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

std::string clock_time(double seconds) {
  const auto s = static_cast<std::int64_t>(std::llround(std::max(seconds, 0.0)));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string grouped_number(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  const std::size_t first = digits.starts_with('-') ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

Progress::Progress(const RunConfig& config, std::int64_t first_step)
    : config_(config), terminal_(isatty(STDOUT_FILENO) == 1), first_step_(first_step) {}

Progress::~Progress() {
  if (!open_) return;
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

std::string Progress::describe(std::int64_t step, const RunningMean& mean) const {
  const std::int64_t per_epoch = config_.steps_per_epoch();
  const double per_step = seconds_ / static_cast<double>(step - first_step_);
  return fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  accuracy {:.1f}%  {} images/s  {} left",
                     (step - 1) / per_epoch + 1, config_.epochs, (step - 1) % per_epoch + 1,
                     per_epoch, mean.mean_loss(), 100 * mean.accuracy(),
                     grouped_number(static_cast<double>(config_.batch) / per_step),
                     clock_time(per_step * static_cast<double>(config_.total_steps() - step)));
}

void Progress::step(std::int64_t step, double seconds, const RunningMean& mean) {
  seconds_ += seconds;
  const std::int64_t per_epoch = config_.steps_per_epoch();
  const bool epoch_ends = step % per_epoch == 0;
  if (!terminal_) {
    // The first step, so that a log shows early that all is well, and ten lines an epoch, of which
    // the last is the caller's summary.
    const std::int64_t stride = std::max<std::int64_t>(per_epoch / 10, 1);
    const std::int64_t done = step % per_epoch;
    const bool shows =
        step == first_step_ + 1 || (done != 0 && done % stride == 0 && per_epoch - done >= stride);
    if (!shows) return;
    line(describe(step, mean));
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - shown_ < std::chrono::milliseconds(100) && !epoch_ends) return;
  shown_ = now;
  const std::string text = describe(step, mean).substr(0, terminal_width() - 1);
  fmt::print("\r{}\x1b[K", text);
  std::fflush(stdout);
  open_ = true;
}

void Progress::line(const std::string& text) {
  if (open_) fmt::print("\r\x1b[K");
  open_ = false;
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

}  // namespace tensorgrad::tools
