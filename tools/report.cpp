#include "report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "chart.h"
#include "html.h"
#include "png.h"
#include "report_style.h"
#include "tensorgrad/error.h"
#include "tensorgrad/io.h"

namespace tensorgrad::tools {
namespace {

constexpr std::uint32_t image_extent = 28;

using Field = std::optional<double> Metrics::*;

std::string percent(double fraction, int decimals = 1) {
  return fmt::format("{:.{}f}%", fraction * 100, decimals);
}

// 1234567 as "1,234,567".
std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  if (!std::isfinite(value)) return digits;
  const std::size_t first_digit = value < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first_digit + 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string shown(const std::optional<double>& value, bool as_percent) {
  if (!value) return "\xe2\x80\x93";
  return as_percent ? percent(*value, 2) : fmt::format("{:.4f}", *value);
}

void check(const Report& report) {
  const std::size_t classes = report.class_names.size();
  if (!report.confusion.empty()) {
    const bool square =
        report.confusion.size() == classes &&
        std::ranges::all_of(report.confusion, [&](const auto& row) {
          return row.size() == classes && std::ranges::all_of(row, [](auto n) { return n >= 0; });
        });
    if (!square) {
      throw ValueError(
          fmt::format("The confusion matrix is not {} rows of {} counts, one for each class.",
                      classes, classes));
    }
  }
  for (const WrongPrediction& wrong : report.wrong) {
    if (wrong.image.size() != image_extent * image_extent) {
      throw ValueError(fmt::format("The image of a wrong prediction has {} bytes instead of {}.",
                                   wrong.image.size(), image_extent * image_extent));
    }
    for (const int label : {wrong.label, wrong.predicted}) {
      if (label < 0 || static_cast<std::size_t>(label) >= classes) {
        throw ValueError(
            fmt::format("Label {} of a wrong prediction is outside [0, {}).", label, classes));
      }
    }
  }
}

// The last value of a field that was measured, and where.
const Metrics* last_with(std::span<const Metrics> rows, Field field) {
  const auto found = std::find_if(rows.rbegin(), rows.rend(),
                                  [&](const Metrics& row) { return (row.*field).has_value(); });
  return found == rows.rend() ? nullptr : &*found;
}

const Metrics* best_accuracy(std::span<const Metrics> rows) {
  const Metrics* best = nullptr;
  for (const Metrics& row : rows) {
    if (!row.test_accuracy || !std::isfinite(*row.test_accuracy)) continue;
    if (best == nullptr || *row.test_accuracy > *best->test_accuracy) best = &row;
  }
  return best;
}

std::string figure(std::string_view name, const std::string& value, const std::string& note = {}) {
  return fmt::format(
      "<div class=\"figure\"><span>{}</span><strong>{}</strong><small>{}</small></div>\n", name,
      value, note);
}

std::string render_header(const Report& report) {
  std::string html =
      fmt::format("<header>\n<h1>{}</h1>\n<div class=\"figures\">\n", escape_html(report.title));
  const std::vector<Metrics>& rows = report.epochs.empty() ? report.steps : report.epochs;
  if (const Metrics* last = last_with(rows, &Metrics::test_accuracy)) {
    const Metrics* best = best_accuracy(rows);
    html += figure("Test accuracy", percent(*last->test_accuracy, 2),
                   best == nullptr ? ""
                                   : fmt::format("best {} in epoch {}",
                                                 percent(*best->test_accuracy, 2), best->epoch));
  }
  if (const Metrics* last = last_with(rows, &Metrics::test_loss)) {
    html += figure("Test loss", fmt::format("{:.4f}", *last->test_loss));
  }
  if (const Metrics* last = last_with(rows, &Metrics::train_accuracy)) {
    html += figure("Train accuracy", percent(*last->train_accuracy, 2));
  }
  if (const Metrics* last = last_with(rows, &Metrics::train_loss)) {
    html += figure("Train loss", fmt::format("{:.4f}", *last->train_loss),
                   fmt::format("epoch {}, step {}", last->epoch, last->step));
  }
  if (const Metrics* last = last_with(rows, &Metrics::images_per_second)) {
    html += figure("Images per second", grouped(*last->images_per_second));
  }
  html += "</div>\n";
  if (!report.configuration.empty()) {
    html += "<dl>\n";
    for (const auto& [key, value] : report.configuration) {
      html +=
          fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape_html(key), escape_html(value));
    }
    html += "</dl>\n";
  }
  return html + "</header>\n";
}

// The line of a field over the steps: averages of neighbouring steps, so that a long run stays a
// small file.
std::vector<ChartPoint> averaged(std::span<const Metrics> rows, Field field, bool as_percent) {
  constexpr std::size_t most = 160;
  std::vector<const Metrics*> measured;
  for (const Metrics& row : rows) {
    if (row.*field) measured.push_back(&row);
  }
  const std::size_t buckets = std::min(most, measured.size());
  std::vector<ChartPoint> points;
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::size_t begin = b * measured.size() / buckets;
    const std::size_t end = (b + 1) * measured.size() / buckets;
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += *(measured[i]->*field);
    const double mean = sum / static_cast<double>(end - begin);
    const std::int64_t first = measured[begin]->step;
    const std::int64_t last = measured[end - 1]->step;
    const std::string steps =
        first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
    points.push_back({static_cast<double>(first + last) / 2, mean,
                      fmt::format("{}, epoch {}: train {}", steps, measured[begin]->epoch,
                                  shown(mean, as_percent))});
  }
  return points;
}

std::vector<ChartPoint> by_epoch(std::span<const Metrics> rows, Field field, std::string_view name,
                                 bool as_percent) {
  std::vector<ChartPoint> points;
  for (const Metrics& row : rows) {
    if (!(row.*field)) continue;
    points.push_back({static_cast<double>(row.step), *(row.*field),
                      fmt::format("after epoch {}, step {}: {} {}", row.epoch, row.step, name,
                                  shown(row.*field, as_percent))});
  }
  return points;
}

std::string render_curve(const Report& report, const std::string& title, Field train, Field test,
                         bool as_percent) {
  Chart chart{.title = title,
              .x_label = "step",
              .percent = as_percent,
              .from_zero = !as_percent,
              .y_limit = as_percent ? 1.0 : 0.0,
              .series = {}};
  std::vector<ChartPoint> train_points = averaged(report.steps, train, as_percent);
  const bool train_by_step = !train_points.empty();
  if (!train_by_step) train_points = by_epoch(report.epochs, train, "train", as_percent);
  std::vector<ChartPoint> test_points = by_epoch(report.epochs, test, "test", as_percent);
  if (test_points.empty()) test_points = by_epoch(report.steps, test, "test", as_percent);
  if (!train_points.empty()) {
    chart.series.push_back({"train", "train", !train_by_step, std::move(train_points)});
  }
  if (!test_points.empty()) {
    chart.series.push_back({"test", "test", true, std::move(test_points)});
  }
  return fmt::format("<section class=\"chart\">\n<h2>{}</h2>\n{}</section>\n", escape_html(title),
                     render_chart(chart));
}

std::string render_epochs(const Report& report) {
  if (report.epochs.empty()) return {};
  std::string html =
      "<section>\n<details>\n<summary>Every epoch as a table</summary>\n<div class=\"scroll\">"
      "<table class=\"epochs\">\n<thead><tr><th>Epoch</th><th>Step</th><th>Train loss</th>"
      "<th>Train accuracy</th><th>Test loss</th><th>Test accuracy</th><th>Images/s</th></tr>"
      "</thead>\n<tbody>\n";
  for (const Metrics& row : report.epochs) {
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        row.epoch, row.step, shown(row.train_loss, false), shown(row.train_accuracy, true),
        shown(row.test_loss, false), shown(row.test_accuracy, true),
        row.images_per_second ? grouped(*row.images_per_second) : "\xe2\x80\x93");
  }
  return html + "</tbody>\n</table></div>\n</details>\n</section>\n";
}

std::string render_confusion(const Report& report) {
  if (report.confusion.empty()) return {};
  std::string html =
      "<section>\n<h2>Confusion matrix</h2>\n<p class=\"note\">Rows are true classes, columns "
      "predictions. Blue cells are right, orange ones wrong; the stronger the colour, "
      "the larger the share of the row.</p>\n<div class=\"scroll\"><table "
      "class=\"confusion\">\n<thead><tr><td></td>";
  for (const std::string& name : report.class_names) {
    html += fmt::format("<th scope=\"col\"><span>{}</span></th>", escape_html(name));
  }
  html += "<th scope=\"col\"><span>recall</span></th></tr></thead>\n<tbody>\n";
  for (std::size_t t = 0; t < report.confusion.size(); ++t) {
    const std::vector<std::int64_t>& row = report.confusion[t];
    const auto total =
        static_cast<double>(std::accumulate(row.begin(), row.end(), std::int64_t{0}));
    const std::string name = escape_html(report.class_names[t]);
    html += fmt::format("<tr><th scope=\"row\">{}</th>", name);
    for (std::size_t p = 0; p < row.size(); ++p) {
      const double share = total > 0 ? static_cast<double>(row[p]) / total : 0;
      // Errors are a few percent of a row: the root makes them visible beside the diagonal.
      const double strength = t == p ? 0.15 + 0.75 * share : std::sqrt(share) * 0.95;
      html += fmt::format(
          "<td class=\"{}{}\" style=\"--a:{:.2f}\" title=\"{} predicted as {}: {} ({})\">{}</td>",
          row[p] == 0 ? "zero"
          : t == p    ? "right"
                      : "wrong",
          strength > 0.75 ? " strong" : "", strength, name, escape_html(report.class_names[p]),
          row[p], percent(share), row[p]);
    }
    html += fmt::format("<td class=\"recall\">{}</td></tr>\n",
                        total > 0 ? percent(static_cast<double>(row[t]) / total) : "\xe2\x80\x93");
  }
  return html + "</tbody>\n</table></div>\n</section>\n";
}

std::string render_wrong(const Report& report) {
  if (report.wrong.empty()) return {};
  std::string html = fmt::format(
      "<section>\n<h2>Wrong predictions</h2>\n<p class=\"note\">{} test image{}, each with its "
      "true class, the class predicted and the probability given to it.</p>\n"
      "<div class=\"sheet\">\n",
      report.wrong.size(), report.wrong.size() == 1 ? "" : "s");
  for (const WrongPrediction& wrong : report.wrong) {
    const std::string label =
        escape_html(report.class_names[static_cast<std::size_t>(wrong.label)]);
    const std::string predicted =
        escape_html(report.class_names[static_cast<std::size_t>(wrong.predicted)]);
    html += fmt::format(
        "<figure><img alt=\"{0}, predicted as {1}\" width=\"84\" height=\"84\" "
        "src=\"data:image/png;base64,{2}\"><figcaption><b>{0}</b><i>&rarr; "
        "{1}</i><small>{3}</small>"
        "</figcaption></figure>\n",
        label, predicted, to_base64(encode_png(wrong.image, image_extent, image_extent)),
        percent(wrong.confidence, 0));
  }
  return html + "</div>\n</section>\n";
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  const std::array<std::span<const std::byte>, 1> parts{std::as_bytes(std::span(text))};
  write_file_atomically(path, parts);
}

}  // namespace

std::string render_report(const Report& report) {
  check(report);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n",
      escape_html(report.title), report_style);
  html += render_header(report);
  if (!report.steps.empty() || !report.epochs.empty()) {
    html += "<div class=\"charts\">\n";
    html += render_curve(report, "Loss", &Metrics::train_loss, &Metrics::test_loss, false);
    html +=
        render_curve(report, "Accuracy", &Metrics::train_accuracy, &Metrics::test_accuracy, true);
    html += "</div>\n";
  }
  html += render_epochs(report);
  html += render_confusion(report);
  html += render_wrong(report);
  return html + "</main>\n</body>\n</html>\n";
}

void write_report(const std::filesystem::path& path, const Report& report) {
  write_text(path, render_report(report));
}

std::string render_metrics_csv(std::span<const Metrics> metrics) {
  std::string csv =
      "step,epoch,train_loss,train_accuracy,test_loss,test_accuracy,images_per_second\n";
  for (const Metrics& row : metrics) {
    csv += fmt::format("{},{}", row.step, row.epoch);
    for (const Field field : {&Metrics::train_loss, &Metrics::train_accuracy, &Metrics::test_loss,
                              &Metrics::test_accuracy, &Metrics::images_per_second}) {
      csv += ',';
      if (row.*field) csv += fmt::format("{}", *(row.*field));
    }
    csv += '\n';
  }
  return csv;
}

void write_metrics_csv(const std::filesystem::path& path, std::span<const Metrics> metrics) {
  write_text(path, render_metrics_csv(metrics));
}

}  // namespace tensorgrad::tools
