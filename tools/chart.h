// Line charts as inline SVG.
#pragma once

#include <string>
#include <vector>

namespace tensorgrad::tools {

/// One point of a line and what it says when pointed at.
struct ChartPoint {
  double x = 0;
  double y = 0;  ///< a value that is not finite leaves a gap in the line
  std::string title;
};

struct ChartSeries {
  std::string name;
  std::string css_class;  ///< sets the colour: "train" or "test"
  bool markers = false;   ///< draw a dot at each point
  std::vector<ChartPoint> points;
};

struct Chart {
  std::string title;
  std::string x_label;
  bool percent = false;    ///< label the y axis as percentages
  bool from_zero = false;  ///< the y axis starts at 0 or below
  double y_limit = 0;      ///< the y axis ends here at most, if above 0
  std::vector<ChartSeries> series;
};

/// Round tick positions, about `count` of them, that cover [low, high]: steps of 1, 2 or 5 times a
/// power of ten. Needs low < high, both finite.
std::vector<double> nice_ticks(double low, double high, int count);

/// An <svg> element with axes, grid, legend and lines; a sentence if no point is finite. All text
/// is escaped.
std::string render_chart(const Chart& chart);

}  // namespace tensorgrad::tools
