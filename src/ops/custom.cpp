// Derivatives that a program gives itself.
#include "ops/custom.h"

#include <algorithm>

#include "ops/rules.h"
#include "tensorgrad/transforms.h"

namespace tensorgrad {
namespace {

const CustomRule& rule_of(const Tensor& y) { return *y.node().attr<CustomAttr>().rule; }

bool inputs_carry(const Node& n, std::size_t i) {
  return i >= 1 && i <= n.attr<CustomAttr>().rule->input_count();
}

std::vector<Tensor> pull(const Tensor& y, std::size_t first_input, const Tensor& ct) {
  const CustomRule& rule = rule_of(y);
  const std::span<const Tensor> operands(y.node().operands);
  return rule.pull(operands.subspan(first_input, rule.input_count()),
                   operands.subspan(first_input + rule.input_count()), ct);
}

// The rule for batches: the rule itself, batched.
class BatchedRule : public CustomRule {
 public:
  BatchedRule(std::shared_ptr<const CustomRule> rule, std::int64_t size)
      : CustomRule(rule->input_count()), rule_(std::move(rule)), size_(size) {}

  std::vector<Tensor> pull(Operands inputs, Operands residuals, const Tensor& ct) const override {
    const Elements elements({inputs, residuals, std::span(&ct, 1)});
    const Operands all = elements.placeholders;
    std::vector<Tensor> out = rule_->pull(all.subspan(0, inputs.size()),
                                          all.subspan(inputs.size(), residuals.size()), all.back());
    for (Tensor& t : out) {
      if (t.defined()) t = vmap(std::span(&t, 1), all, elements.batched, size_)[0];
    }
    return out;
  }
  Tensor push(Operands inputs, Operands residuals, Operands tangents) const override {
    std::vector<Tensor> given;
    for (const Tensor& t : tangents) {
      if (t.defined()) given.push_back(t);
    }
    const Elements elements({inputs, residuals, given});
    const Operands all = elements.placeholders;
    std::size_t next = inputs.size() + residuals.size();
    std::vector<Tensor> directions;
    for (const Tensor& t : tangents) directions.push_back(t.defined() ? all[next++] : Tensor());
    const Tensor out = rule_->push(all.subspan(0, inputs.size()),
                                   all.subspan(inputs.size(), residuals.size()), directions);
    return out.defined() ? vmap(std::span(&out, 1), all, elements.batched, size_)[0] : out;
  }

 private:
  struct Elements {
    Elements(std::initializer_list<Operands> lists) {
      for (const Operands list : lists) {
        for (const Tensor& t : list) {
          batched.push_back(t);
          placeholders.push_back(prim::input(
              InputRole::argument, "element",
              {Shape(t.shape().begin() + 1, t.shape().end()), t.dtype()}, t.node().site));
        }
      }
    }
    std::vector<Tensor> batched, placeholders;
  };
  std::shared_ptr<const CustomRule> rule_;
  std::int64_t size_;
};

Tensor vmap_custom(const Tensor& y, Operands x, Batched batched, std::int64_t size) {
  const Node& n = y.node();
  return make(*n.op, batch_all(x, batched, size),
              CustomAttr{std::make_shared<BatchedRule>(n.attr<CustomAttr>().rule, size)}, n.site);
}

Op custom_row() {
  return {.name = "custom",
          .doc = "Passes its first operand, whose derivative the program gives itself.",
          .infer = infer_same,
          .jvp = JvpRule{[](const Tensor& y, Tangents t) {
            const CustomRule& rule = rule_of(y);
            const std::size_t count = rule.input_count();
            const Operands operands(y.node().operands);
            return rule.push(operands.subspan(1, count), operands.subspan(1 + count),
                             t.subspan(1, count));
          }},
          .transpose = NotLinear{},
          .vmap = vmap_custom,
          .lowering = LowerView{lower_identity, true},
          .reference = reference_identity,
          .samples = [] { return std::vector<Sample>{}; },
          .ulp = 0,
          .carries = inputs_carry};
}

// Lives only between linearisation and transposition. Operands: the value, then tangents of the
// inputs, inputs, residuals.
Op custom_tangent_row() {
  return {.name = "custom_tangent",
          .doc = "A tangent of `custom` that is about to be transposed.",
          .infer = infer_same,
          .jvp = NotDifferentiable{"it is only ever transposed"},
          .transpose = TransposeRule{[](const Tensor& y, const Tensor& ct, Batched) {
            const std::size_t count = rule_of(y).input_count();
            Cotangents out(y.node().operands.size());
            const std::vector<Tensor> back = pull(y, 1 + count, ct);
            std::copy(back.begin(), back.end(), out.begin() + 1);
            return out;
          }},
          .vmap = vmap_elementwise,
          .lowering = LowerLeaf{},
          .reference = reference_identity,
          .samples = [] { return std::vector<Sample>{}; },
          .ulp = 0};
}

enum Row : std::size_t { custom_value, custom_tangent };

std::span<const Op> rows() {
  static const Op table[] = {custom_row(), custom_tangent_row()};
  return table;
}

}  // namespace

std::span<const Op> custom_ops() { return rows(); }

namespace prim {

Tensor custom(const Tensor& value, std::span<const Tensor> inputs,
              std::span<const Tensor> residuals, std::shared_ptr<const CustomRule> rule,
              const Site& site) {
  std::vector<Tensor> operands{value};
  operands.insert(operands.end(), inputs.begin(), inputs.end());
  operands.insert(operands.end(), residuals.begin(), residuals.end());
  return make(rows()[Row::custom_value], std::move(operands), CustomAttr{std::move(rule)}, site);
}
Tensor custom_tangent(const Tensor& y, std::span<const Tensor> tangents) {
  const std::span<const Tensor> of(y.node().operands);
  const std::size_t count = rule_of(y).input_count();
  std::vector<Tensor> operands{of[0]};
  for (std::size_t i = 1; i <= count; ++i) {
    operands.push_back(tangents[i].defined() ? tangents[i] : prim::zeros_like(of[i]));
  }
  operands.insert(operands.end(), of.begin() + 1, of.end());
  return make(rows()[Row::custom_tangent], std::move(operands), y.node().attrs, y.node().site);
}

}  // namespace prim
}  // namespace tensorgrad
