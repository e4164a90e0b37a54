#include "report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <set>

#include "chart.h"
#include "html.h"
#include "io/temp_folder.h"
#include "png.h"
#include "tensorgrad/error.h"
#include "tensorgrad/io.h"

namespace tensorgrad::tools {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Report example() {
  Report report;
  report.title = "MLP <on> Fashion-MNIST & \"more\"";
  report.configuration = {{"learning rate", "0.001"}, {"note", "<script>alert('x')</script>"}};
  for (int step = 1; step <= 500; ++step) {
    report.steps.push_back({.step = step,
                            .epoch = (step - 1) / 100,
                            .train_loss = 2.3 / step,
                            .train_accuracy = 1 - 0.9 / step,
                            .test_loss = {},
                            .test_accuracy = {},
                            .images_per_second = {}});
  }
  for (int epoch = 0; epoch < 5; ++epoch) {
    report.epochs.push_back({.step = (epoch + 1) * 100,
                             .epoch = epoch,
                             .train_loss = 0.5 - 0.05 * epoch,
                             .train_accuracy = 0.8 + 0.02 * epoch,
                             .test_loss = 0.55 - 0.05 * epoch,
                             .test_accuracy = epoch == 3 ? 0.9321 : 0.8 + 0.01 * epoch,
                             .images_per_second = 12345.6});
  }
  for (int c = 0; c < 10; ++c) {
    report.class_names.push_back("class <" + std::to_string(c) + ">");
    std::vector<std::int64_t> row(10, 3);
    row[static_cast<std::size_t>(c)] = 970 + c;
    report.confusion.push_back(row);
  }
  std::vector<std::uint8_t> image(28 * 28);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<std::uint8_t>(i * 7);
  report.wrong.push_back({.image = image, .label = 2, .predicted = 4, .confidence = 0.876});
  return report;
}

// The open tags that are left, or a complaint; void elements and SVG's self-closed ones aside.
std::string check_balance(const std::string& html) {
  const std::set<std::string> void_elements{"meta", "img", "br", "hr", "!DOCTYPE"};
  std::vector<std::string> open;
  for (std::size_t i = html.find('<'); i != std::string::npos; i = html.find('<', i + 1)) {
    const std::size_t end = html.find('>', i);
    if (end == std::string::npos) return "a tag is not closed at " + std::to_string(i);
    const std::string tag = html.substr(i + 1, end - i - 1);
    if (std::ranges::count(tag, '"') % 2 != 0) return "odd quotes in <" + tag + ">";
    if (tag.find('<') != std::string::npos) return "a tag in <" + tag + ">";
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (name.starts_with('/')) {
      if (open.empty() || open.back() != name.substr(1)) return "stray <" + name + ">";
      open.pop_back();
    } else if (!tag.ends_with('/') && !void_elements.contains(name)) {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> stays open";
}

std::vector<std::uint8_t> from_base64(std::string_view text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::uint8_t> bytes;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    group = group << 6 | static_cast<std::uint32_t>(digits.find(c));
    bits += 6;
    if (bits >= 8) bytes.push_back(static_cast<std::uint8_t>(group >> (bits -= 8)));
  }
  return bytes;
}

std::uint32_t u32_at(std::span<const std::uint8_t> bytes, std::size_t at) {
  return static_cast<std::uint32_t>(bytes[at]) << 24 |
         static_cast<std::uint32_t>(bytes[at + 1]) << 16 |
         static_cast<std::uint32_t>(bytes[at + 2]) << 8 | bytes[at + 3];
}

// Pixels of an 8-bit grey PNG without filters; checks every checksum.
std::vector<std::uint8_t> decode_png(std::span<const std::uint8_t> png) {
  const std::vector<std::uint8_t> signature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  EXPECT_TRUE(std::equal(signature.begin(), signature.end(), png.begin()));
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<std::uint8_t> packed;
  std::string last_type;
  for (std::size_t at = 8; at + 12 <= png.size();) {
    const std::uint32_t size = u32_at(png, at);
    last_type.assign(png.begin() + at + 4, png.begin() + at + 8);
    EXPECT_EQ(crc32(0, png.data() + at + 4, size + 4), u32_at(png, at + 8 + size));
    if (last_type == "IHDR") {
      width = u32_at(png, at + 8);
      height = u32_at(png, at + 12);
      EXPECT_EQ(png[at + 16], 8);
      EXPECT_EQ(png[at + 17], 0);
    } else if (last_type == "IDAT") {
      packed.insert(packed.end(), png.begin() + at + 8, png.begin() + at + 8 + size);
    }
    at += 12 + size;
  }
  EXPECT_EQ(last_type, "IEND");
  std::vector<std::uint8_t> rows((width + 1) * height);
  uLongf size = rows.size();
  EXPECT_EQ(uncompress(rows.data(), &size, packed.data(), packed.size()), Z_OK);
  EXPECT_EQ(size, rows.size());
  std::vector<std::uint8_t> pixels;
  for (std::size_t y = 0; y < height; ++y) {
    EXPECT_EQ(rows[y * (width + 1)], 0);
    const auto row = rows.begin() + static_cast<std::ptrdiff_t>(y * (width + 1));
    pixels.insert(pixels.end(), row + 1, row + 1 + width);
  }
  return pixels;
}

TEST(Report, IsOneBalancedPageWithoutOutsideResources) {
  const std::string html = render_report(example());
  EXPECT_EQ(check_balance(html), "");
  for (const char* outside :
       {"http:", "https:", "\"//", "'//", "<script", "<link", "@import", "url("}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  EXPECT_THAT(html, AllOf(HasSubstr("<!DOCTYPE html>"), HasSubstr("prefers-color-scheme: dark"),
                          HasSubstr("width=device-width")));
}

TEST(Report, ShowsFinalAndBestFigures) {
  const std::string html = render_report(example());
  EXPECT_THAT(html, AllOf(HasSubstr("84.00%"), HasSubstr("best 93.21% in epoch 3"),
                          HasSubstr("0.3500"), HasSubstr("12,346"), HasSubstr("learning rate")));
}

TEST(Report, EscapesAllText) {
  const std::string html = render_report(example());
  EXPECT_THAT(html, AllOf(HasSubstr("MLP &lt;on&gt; Fashion-MNIST &amp; &quot;more&quot;"),
                          HasSubstr("&lt;script&gt;alert(&#39;x&#39;)"),
                          HasSubstr("class &lt;2&gt;"), Not(HasSubstr("class <2>"))));
  EXPECT_EQ(escape_html("a\x01\x7f\n&"), "a\xef\xbf\xbd\xef\xbf\xbd\n&amp;");
}

TEST(Report, EmbedsTheImages) {
  const Report report = example();
  const std::string html = render_report(report);
  const std::string start = "data:image/png;base64,";
  const std::size_t at = html.find(start);
  ASSERT_NE(at, std::string::npos);
  const std::size_t end = html.find('"', at);
  const auto png =
      from_base64(std::string_view(html).substr(at + start.size(), end - at - start.size()));
  EXPECT_EQ(decode_png(png), report.wrong[0].image);
  EXPECT_THAT(html, HasSubstr("88%"));
}

TEST(Report, LeavesOutWhatItHasNoDataFor) {
  Report report;
  report.title = "empty";
  const std::string html = render_report(report);
  EXPECT_EQ(check_balance(html), "");
  EXPECT_THAT(html, Not(HasSubstr("<svg")));
  EXPECT_THAT(html, Not(HasSubstr("Confusion")));
}

TEST(Report, DrawsValuesThatAreNotFiniteAsGaps) {
  Report report = example();
  report.epochs[2].test_loss = std::numeric_limits<double>::quiet_NaN();
  report.epochs[3].test_loss = std::numeric_limits<double>::infinity();
  for (Metrics& row : report.steps) row.train_loss = std::numeric_limits<double>::infinity();
  const std::string html = render_report(report);
  EXPECT_EQ(check_balance(html), "");
  const std::size_t svg = html.find("<svg");
  const std::string chart = html.substr(svg, html.find("</svg>") - svg);
  EXPECT_THAT(chart,
              AllOf(Not(HasSubstr("\"nan")), Not(HasSubstr("\"inf")), Not(HasSubstr("L nan"))));
}

TEST(Report, RefusesDataThatDoesNotFit) {
  Report report = example();
  report.confusion.pop_back();
  EXPECT_THROW(render_report(report), ValueError);
  report = example();
  report.confusion[3].push_back(1);
  EXPECT_THROW(render_report(report), ValueError);
  report = example();
  report.wrong[0].image.pop_back();
  EXPECT_THROW(render_report(report), ValueError);
  report = example();
  report.wrong[0].predicted = 10;
  EXPECT_THROW(render_report(report), ValueError);
}

TEST(Report, WritesItsFiles) {
  const test::TempFolder folder;
  const Report report = example();
  write_report(folder / "report.html", report);
  EXPECT_EQ(read_file(folder / "report.html"), test::to_bytes(render_report(report)));
  write_metrics_csv(folder / "metrics.csv", report.epochs);
  EXPECT_EQ(read_file(folder / "metrics.csv"), test::to_bytes(render_metrics_csv(report.epochs)));
  EXPECT_THROW(write_report(folder / "none" / "report.html", report), FormatError);
}

TEST(Report, WritesCsv) {
  const std::vector<Metrics> rows{{.step = 10,
                                   .epoch = 1,
                                   .train_loss = 0.1,
                                   .train_accuracy = {},
                                   .test_loss = {},
                                   .test_accuracy = 0.5,
                                   .images_per_second = 1e6}};
  EXPECT_EQ(render_metrics_csv(rows),
            "step,epoch,train_loss,train_accuracy,test_loss,test_accuracy,images_per_second\n"
            "10,1,0.1,,,0.5,1000000\n");
}

TEST(Chart, TicksAreRoundAndCoverTheRange) {
  EXPECT_THAT(nice_ticks(0, 1, 5), ElementsAre(0, testing::DoubleEq(0.2), testing::DoubleEq(0.4),
                                               testing::DoubleEq(0.6), testing::DoubleEq(0.8), 1));
  EXPECT_THAT(nice_ticks(-3, 12, 4), ElementsAre(-5, 0, 5, 10, 15));
  for (const auto& [low, high] : {std::pair(0.0, 2.31), {1e-9, 2e-9}, {-7e5, 3e8}, {99.9, 100.0}}) {
    const auto ticks = nice_ticks(low, high, 5);
    EXPECT_LE(ticks.front(), low + 1e-9 * (high - low));
    EXPECT_GE(ticks.back(), high - 1e-9 * (high - low));
    EXPECT_GE(ticks.size(), 3U);
    EXPECT_LE(ticks.size(), 9U);
  }
}

TEST(Chart, ASinglePointAndAFlatLineCanBeDrawn) {
  Chart chart{
      .title = "t", .x_label = "step", .series = {{"train", "train", true, {{5, 0.25, "p"}}}}};
  EXPECT_THAT(render_chart(chart), AllOf(HasSubstr("<circle"), Not(HasSubstr("nan"))));
  chart.percent = true;
  chart.y_limit = 1;
  chart.series[0].points = {{0, 1, "a"}, {1, 1, "b"}};
  EXPECT_THAT(render_chart(chart), AllOf(HasSubstr("100%"), Not(HasSubstr("nan"))));
  chart.series[0].points.clear();
  EXPECT_THAT(render_chart(chart), HasSubstr("no values"));
}

TEST(Png, RefusesSizesThatDoNotMatch) {
  EXPECT_THROW(encode_png(std::vector<std::uint8_t>(5), 2, 3), ValueError);
  EXPECT_THROW(encode_png({}, 0, 0), ValueError);
}

TEST(Png, Base64HasTheStandardPadding) {
  const std::string text = "foobar";
  const std::vector<std::string> expected{"",         "Zg==",     "Zm8=",    "Zm9v",
                                          "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (std::size_t n = 0; n <= text.size(); ++n) {
    EXPECT_EQ(to_base64(std::vector<std::uint8_t>(text.begin(),
                                                  text.begin() + static_cast<std::ptrdiff_t>(n))),
              expected[n]);
  }
}

}  // namespace
}  // namespace tensorgrad::tools
