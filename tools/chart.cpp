#include "chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "html.h"

namespace tensorgrad::tools {
namespace {

// Sizes in the units of the viewBox, which a phone shows at about three quarters.
constexpr double width = 480;
constexpr double height = 300;
constexpr double left = 52;
constexpr double right = 14;
constexpr double top = 34;
constexpr double bottom = 46;

struct Axis {
  double low = 0;
  double high = 1;
  std::vector<double> ticks;
  double pixel_low = 0;
  double pixel_high = 1;

  double place(double value) const {
    return pixel_low + (value - low) / (high - low) * (pixel_high - pixel_low);
  }
};

bool drawable(const ChartPoint& point) { return std::isfinite(point.x) && std::isfinite(point.y); }

std::string tick_text(double value, double step, bool percent) {
  const double shown = percent ? value * 100 : value;
  const double shown_step = percent ? step * 100 : step;
  if (shown != 0 && (std::abs(shown) >= 1e6 || std::abs(shown_step) < 1e-4)) {
    return fmt::format("{:.3g}{}", shown, percent ? "%" : "");
  }
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(shown_step) - 1e-9)));
  return fmt::format("{:.{}f}{}", shown, decimals, percent ? "%" : "");
}

double step_of(const Axis& axis) { return axis.ticks[1] - axis.ticks[0]; }

std::string draw_axes(const Chart& chart, const Axis& x, const Axis& y) {
  std::string svg;
  for (const double tick : y.ticks) {
    svg += fmt::format(R"(<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)"
                       R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>)",
                       left, width - right, y.place(tick), y.place(tick), left - 7,
                       y.place(tick) + 4, tick_text(tick, step_of(y), chart.percent));
  }
  for (const double tick : x.ticks) {
    if (tick < x.low || tick > x.high) continue;
    svg += fmt::format(R"(<line class="axis" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}"/>)"
                       R"(<text x="{0:.1f}" y="{3:.1f}" text-anchor="middle">{4}</text>)",
                       x.place(tick), height - bottom, height - bottom + 4, height - bottom + 18,
                       tick_text(tick, step_of(x), false));
  }
  svg += fmt::format(R"(<line class="axis" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)",
                     left, width - right, height - bottom, height - bottom);
  svg += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)",
                     (left + width - right) / 2, height - 8, escape_html(chart.x_label));
  return svg;
}

std::string draw_legend(const Chart& chart) {
  std::string svg;
  double x = left;
  for (const ChartSeries& series : chart.series) {
    svg += fmt::format(R"(<line class="line {0}" x1="{1:.1f}" x2="{2:.1f}" y1="16" y2="16"/>)"
                       R"(<text x="{3:.1f}" y="20">{4}</text>)",
                       escape_html(series.css_class), x, x + 20, x + 26, escape_html(series.name));
    x += 26 + 7.0 * static_cast<double>(series.name.size()) + 22;
  }
  return svg;
}

std::string draw_series(const ChartSeries& series, const Axis& x, const Axis& y) {
  std::string path;
  std::string dots;
  bool pen_down = false;
  for (const ChartPoint& point : series.points) {
    if (!drawable(point)) {
      pen_down = false;
      continue;
    }
    const double px = x.place(point.x);
    const double py = y.place(point.y);
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", px, py);
    pen_down = true;
    // The transparent ring makes a target that a finger or a mouse can hit.
    dots += fmt::format(
        R"(<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"><title>{}</title></circle>)",
        series.markers ? "dot" : "hit", px, py, series.markers ? "3.5" : "6",
        escape_html(point.title));
  }
  return fmt::format(R"(<g class="{0}"><path class="line" d="{1}"/>{2}</g>)",
                     escape_html(series.css_class), path, dots);
}

}  // namespace

std::vector<double> nice_ticks(double low, double high, int count) {
  const double raw = (high - low) / std::max(1, count);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  const double first = std::floor(low / step + 1e-9);
  const double last = std::max(first + 1, std::ceil(high / step - 1e-9));
  std::vector<double> ticks;
  for (int i = 0; first + i <= last; ++i) ticks.push_back((first + i) * step);
  return ticks;
}

std::string render_chart(const Chart& chart) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  double x_low = inf;
  double x_high = -inf;
  double y_low = chart.from_zero ? 0 : inf;
  double y_high = -inf;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      if (!drawable(point)) continue;
      x_low = std::min(x_low, point.x);
      x_high = std::max(x_high, point.x);
      y_low = std::min(y_low, point.y);
      y_high = std::max(y_high, point.y);
    }
  }
  if (x_low > x_high) {
    return fmt::format("<p class=\"note\">{}: no values to draw.</p>", escape_html(chart.title));
  }
  if (x_low == x_high) x_low -= 1, x_high += 1;
  // A flat line still needs a range that doubles of this size can tell apart.
  const double least = std::max(1e-6, std::max(std::abs(y_low), std::abs(y_high)) * 1e-6);
  if (y_high - y_low < least) {
    const double margin = std::max(0.05, std::abs(y_high) * 0.1);
    y_high += margin;
    if (!chart.from_zero) y_low -= margin;
  }
  if (chart.y_limit > 0) y_high = std::min(y_high, std::max(chart.y_limit, y_low + least));

  Axis x{x_low, x_high, nice_ticks(x_low, x_high, 6), left, width - right};
  // A run's first step is close enough to 0 to show the origin.
  if (x.low - x.ticks.front() < 0.05 * (x.high - x.low)) x.low = x.ticks.front();
  Axis y{0, 0, nice_ticks(y_low, y_high, 5), height - bottom, top};
  y.low = y.ticks.front();
  y.high = y.ticks.back();

  std::string svg = fmt::format(
      R"(<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}"><title>{}</title>)", width,
      height, escape_html(chart.title), escape_html(chart.title));
  svg += draw_axes(chart, x, y);
  for (const ChartSeries& series : chart.series) svg += draw_series(series, x, y);
  svg += draw_legend(chart);
  svg += "</svg>\n";
  return svg;
}

}  // namespace tensorgrad::tools
