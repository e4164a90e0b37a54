#include "ops_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>

#include "graph/node.h"
#include "ops/primitives.h"
#include "ops/registry.h"

namespace tensorgrad::tools {
namespace {

std::string kind_of(const Op& op) {
  struct Kind {
    std::string operator()(const LowerLeaf&) const { return "leaf"; }
    std::string operator()(const LowerGenerate&) const { return "generator"; }
    std::string operator()(const LowerMap&) const { return "map"; }
    std::string operator()(const LowerView&) const { return "view"; }
    std::string operator()(const LowerConcat&) const { return "concatenation"; }
    std::string operator()(const LowerIndirect&) const { return "indirect view"; }
    std::string operator()(const LowerReduce&) const { return "reduction"; }
    std::string operator()(const LowerScan&) const { return "scan"; }
    std::string operator()(const LowerSort&) const { return "sort"; }
    std::string operator()(const LowerDot&) const { return "contraction"; }
    std::string operator()(const LowerConv&) const { return "convolution"; }
    std::string operator()(const LowerAttention&) const { return "attention"; }
    std::string operator()(const LowerScatter&) const { return "scatter"; }
  };
  return std::visit(Kind{}, *op.lowering);
}

// Of the operand whose dtypes vary, or of each if none does.
std::vector<std::string> dtypes_of(const std::vector<Sample>& samples) {
  std::vector<std::string> out;
  for (const Sample& s : samples) {
    std::vector<std::string> names;
    for (const Type& t : s.operands) {
      if (names.empty() || names.back() != name(t.dtype)) names.emplace_back(name(t.dtype));
    }
    std::string joined = fmt::format("{}", fmt::join(names, " and "));
    if (std::find(out.begin(), out.end(), joined) == out.end()) out.push_back(std::move(joined));
  }
  return out;
}

std::string derivative_of(const Op& op, const std::vector<Sample>& samples) {
  if (const auto* none = std::get_if<NotDifferentiable>(&*op.jvp)) {
    return fmt::format("none: {}", none->why);
  }
  for (const Sample& s : samples) {
    std::vector<Tensor> operands;
    std::vector<Tensor> tangents;
    bool any = false;
    for (const Type& t : s.operands) {
      operands.push_back(prim::input(InputRole::argument, "x", t));
      const bool is_real = is_floating(t.dtype);
      tangents.push_back(is_real ? prim::input(InputRole::argument, "t", t) : Tensor());
      any = any || is_real;
    }
    if (!any) continue;
    const Tensor y = make(op, operands, s.attrs, Site::current());
    if (std::get<JvpRule>(*op.jvp)(y, tangents).defined()) return "yes";
  }
  return "zero";
}

std::string escaped(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
    text.insert(at, "\\");
  }
  return text;
}

}  // namespace

std::vector<OpEntry> op_entries() {
  std::vector<OpEntry> out;
  for (const Op* op : registry()) {
    const std::vector<Sample> samples = (*op->samples)();
    OpEntry e;
    e.name = *op->name;
    e.kind = kind_of(*op);
    e.dtypes = dtypes_of(samples);
    e.derivative = derivative_of(*op, samples);
    e.linear = std::holds_alternative<TransposeRule>(*op->transpose);
    e.ulp = *op->ulp;
    e.doc = *op->doc;
    out.push_back(std::move(e));
  }
  return out;
}

std::string ops_markdown() {
  std::string page =
      "# Primitive ops\n\n"
      "Every function of `tensorgrad/ops.h` is made of these. The table is generated from the "
      "registry by `tensorgrad ops`; a test compares it with this page.\n\n"
      "- **kind**: how the schedule sees the op. Maps, views, generators and concatenations are "
      "computed inside the kernels that read them.\n"
      "- **derivative**: \"zero\" is a derivative of 0 wherever there is one, so masks and "
      "positions can be used within differentiated code; \"none\" is an error that names the op "
      "and the line.\n"
      "- **linear**: the op is linear in some operand and has a transpose rule.\n"
      "- **ULP**: how far a device may be from the reference in double precision, relative, in "
      "units in the last place of f32; for sums relative to the sum of the magnitudes.\n\n"
      "| op | kind | operands | derivative | linear | ULP | what it computes |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const OpEntry& e : op_entries()) {
    page += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", e.name, e.kind,
                        fmt::join(e.dtypes, "; "), e.derivative, e.linear ? "yes" : "", e.ulp,
                        escaped(e.doc));
  }
  return page;
}

std::string ops_json() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const OpEntry& e : op_entries()) {
    list.push_back({{"name", e.name},
                    {"kind", e.kind},
                    {"operands", e.dtypes},
                    {"derivative", e.derivative},
                    {"linear", e.linear},
                    {"ulp", e.ulp},
                    {"doc", e.doc}});
  }
  return list.dump(2) + "\n";
}

}  // namespace tensorgrad::tools
