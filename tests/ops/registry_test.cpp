// Tests of every row of the registry, generated from the registry alone: types, derivatives against
// central differences in double, transposes against derivatives, batching against a loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "ops/sampling.h"
#include "tensorgrad/transforms.h"

namespace tensorgrad::testing {
namespace {

// Beyond this many elements a sample exercises block sizes of backends, not rules.
constexpr std::int64_t small_sample = 1500;

template <class Rule, class Field>
const Rule* rule_of(const Field& field) {
  return std::get_if<Rule>(&*field);
}

std::vector<std::string> names_where(bool (*predicate)(const Op&)) {
  std::vector<std::string> out;
  for (const Op* op : registry()) {
    if (predicate(*op)) out.emplace_back(*op->name);
  }
  return out;
}
bool has_samples(const Op& op) { return !(*op.samples)().empty(); }
bool has_float_operand(const Sample& s) {
  return std::any_of(s.operands.begin(), s.operands.end(),
                     [](const Type& t) { return is_floating(t.dtype); });
}
bool is_differentiable(const Op& op) {
  const std::vector<Sample> samples = (*op.samples)();
  return rule_of<JvpRule>(op.jvp) != nullptr &&
         std::any_of(samples.begin(), samples.end(), has_float_operand);
}
bool is_linear(const Op& op) {
  return rule_of<TransposeRule>(op.transpose) != nullptr && has_samples(op);
}

class RegistryTest : public ::testing::TestWithParam<std::string> {
 protected:
  const Op& op() const { return find_op(GetParam()); }
};

std::string test_name(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

void expect_near(const RefArray& actual, const RefArray& expected, double tolerance,
                 const char* what) {
  ASSERT_EQ(to_string(actual.type), to_string(expected.type)) << what;
  ASSERT_EQ(actual.data.size(), expected.data.size()) << what;
  for (std::size_t i = 0; i < actual.data.size(); ++i) {
    const double a = actual.data[i];
    const double e = expected.data[i];
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    ASSERT_LE(std::fabs(a - e), tolerance * std::max(1.0, std::fabs(e)))
        << what << ", element " << i << ": " << a << " instead of " << e;
  }
}

RefArray run_reference(const Tensor& y, std::span<const RefArray> operands) {
  std::vector<const RefArray*> pointers;
  for (const RefArray& a : operands) pointers.push_back(&a);
  return (*y.node().op->reference)(y.node(), pointers);
}

RefArray moved(const RefArray& x, const RefArray& direction, double step) {
  RefArray out = x;
  for (std::size_t i = 0; i < out.data.size(); ++i) out.data[i] += step * direction.data[i];
  return out;
}
std::vector<RefArray> moved(std::vector<RefArray> x, std::span<const RefArray> directions,
                            double step) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = moved(x[i], directions[i], step);
  return x;
}

/// (high - low) / (2 h). A value that is NaN at both points is a constant.
RefArray difference(const RefArray& high, const RefArray& low, double h) {
  RefArray out = high;
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    const bool constant = std::isnan(high.data[i]) && std::isnan(low.data[i]);
    out.data[i] = constant ? 0 : (high.data[i] - low.data[i]) / (2 * h);
  }
  return out;
}

/// Directions for the operands: zero for those that are not f32 or not in `active`.
std::vector<RefArray> draw_directions(const Sample& sample, const std::vector<bool>& active,
                                      Rng& rng) {
  std::vector<RefArray> out;
  for (std::size_t i = 0; i < sample.operands.size(); ++i) {
    const double reach = active[i] && is_floating(sample.operands[i].dtype) ? 1 : 0;
    RefArray d = draw({sample.operands[i].shape, DType::f32}, -reach, reach, rng);
    d.type = sample.operands[i];
    out.push_back(std::move(d));
  }
  return out;
}

/// Whether the numbers of a sample are too coarse for differences, and for sums in double.
bool is_half(const Sample& sample) {
  const auto* to = std::get_if<DTypeAttr>(&sample.attrs);
  return (to != nullptr && to->dtype == DType::f16) ||
         std::any_of(sample.operands.begin(), sample.operands.end(),
                     [](const Type& t) { return t.dtype == DType::f16; });
}

/// Each f32 operand alone, and all of them together.
std::vector<std::vector<bool>> float_subsets(const Sample& sample) {
  std::vector<bool> all;
  for (const Type& t : sample.operands) all.push_back(is_floating(t.dtype));
  std::vector<std::vector<bool>> out;
  const auto count = std::count(all.begin(), all.end(), true);
  if (count == 0) return out;
  out.push_back(all);
  for (std::size_t i = 0; count > 1 && i < all.size(); ++i) {
    if (!all[i]) continue;
    out.emplace_back(all.size(), false);
    out.back()[i] = true;
  }
  return out;
}

// ---- types
// ---------------------------------------------------------------------------------------

class TypeTest : public RegistryTest {};

TEST_P(TypeTest, ReferenceHasTheInferredType) {
  const std::vector<Sample> samples = (*op().samples)();
  for (std::size_t s = 0; s < samples.size(); ++s) {
    SCOPED_TRACE(describe(op(), samples[s]));
    Rng rng = rng_for(op(), s);
    const std::vector<RefArray> operands = draw_operands(samples[s], rng);
    Bindings bindings;
    const Tensor y = apply(op(), samples[s], bindings.add(operands));
    const RefArray out = bindings.evaluate(y);
    EXPECT_EQ(to_string(out.type), to_string(y.node().type));
    EXPECT_EQ(static_cast<std::int64_t>(out.data.size()), numel(y.shape()));
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, TypeTest, ::testing::ValuesIn(names_where(has_samples)), test_name);

TEST(Registry, OnlyLeavesAndMarksHaveNoSamples) {
  EXPECT_THAT(names_where([](const Op& op) { return !has_samples(op); }),
              ::testing::IsSubsetOf({"constant", "iota", "data", "input", "training_flag",
                                     "step_key", "stop_gradient", "identity", "assign", "barrier",
                                     "custom", "custom_tangent"}));
}

TEST(Registry, NamesAreDistinct) {
  std::vector<std::string> names = names_where([](const Op&) { return true; });
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

// ---- derivatives
// ---------------------------------------------------------------------------------

class DerivativeTest : public RegistryTest {};

/// The rule's tangent of y for placeholders of `directions`, empty where not `active`.
Tensor tangent_of(const Tensor& y, std::span<const RefArray> directions,
                  const std::vector<bool>& active, Bindings& bindings) {
  std::vector<Tensor> tangents;
  for (std::size_t i = 0; i < directions.size(); ++i) {
    tangents.push_back(active[i] ? bindings.add(directions[i]) : Tensor());
  }
  return std::get<JvpRule>(*y.node().op->jvp)(y, tangents);
}

TEST_P(DerivativeTest, FirstAgreesWithDifferences) {
  const std::vector<Sample> samples = (*op().samples)();
  constexpr double h = 1e-6;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    if (total_elements(samples[s]) > small_sample || is_half(samples[s])) continue;
    for (const std::vector<bool>& active : float_subsets(samples[s])) {
      SCOPED_TRACE(describe(op(), samples[s]));
      Rng rng = rng_for(op(), s);
      const std::vector<RefArray> x = draw_operands(samples[s], rng);
      const std::vector<RefArray> directions = draw_directions(samples[s], active, rng);
      Bindings bindings;
      const Tensor y = apply(op(), samples[s], bindings.add(x));
      const Tensor t = tangent_of(y, directions, active, bindings);
      if (!is_floating(y.dtype())) {
        EXPECT_FALSE(t.defined()) << "a result that is not a float has a tangent";
        continue;
      }
      const RefArray numeric = difference(run_reference(y, moved(x, directions, h)),
                                          run_reference(y, moved(x, directions, -h)), h);
      RefArray rule{y.node().type, std::vector<double>(numeric.data.size(), 0)};
      if (t.defined()) rule = bindings.evaluate(t);
      expect_near(rule, numeric, 1e-6, "tangent");
    }
  }
}

TEST_P(DerivativeTest, SecondAgreesWithDifferences) {
  const std::vector<Sample> samples = (*op().samples)();
  constexpr double h = 1e-5;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    if (total_elements(samples[s]) > small_sample / 4 || is_half(samples[s])) continue;
    for (const std::vector<bool>& active : float_subsets(samples[s])) {
      SCOPED_TRACE(describe(op(), samples[s]));
      Rng rng = rng_for(op(), s, 1);
      const std::vector<RefArray> x = draw_operands(samples[s], rng);
      const std::vector<RefArray> first = draw_directions(samples[s], active, rng);
      const std::vector<RefArray> second = draw_directions(samples[s], active, rng);
      Bindings bindings;
      const std::vector<Tensor> inputs = bindings.add(x);
      const Tensor t = tangent_of(apply(op(), samples[s], inputs), first, active, bindings);
      if (!t.defined()) continue;

      std::vector<Tensor> by;
      std::vector<Tensor> along;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (!active[i]) continue;
        by.push_back(inputs[i]);
        along.push_back(bindings.add(second[i]));
      }
      const RefArray rule = bindings.evaluate(jvp(std::span(&t, 1), by, along)[0]);
      const auto at = [&](double step) {
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          bindings[inputs[i]] = moved(x[i], second[i], step);
        }
        return bindings.evaluate(t);
      };
      const RefArray high = at(h);
      expect_near(rule, difference(high, at(-h), h), 1e-5, "second tangent");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, DerivativeTest, ::testing::ValuesIn(names_where(is_differentiable)),
                         test_name);

// ---- transposes
// ----------------------------------------------------------------------------------

class TransposeTest : public RegistryTest {};

double dot(const RefArray& a, const RefArray& b) {
  return std::inner_product(a.data.begin(), a.data.end(), b.data.begin(), 0.0);
}

std::vector<RefArray> combined(const std::vector<RefArray>& x, const std::vector<RefArray>& t,
                               const std::vector<bool>& linear, double factor) {
  std::vector<RefArray> out = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!linear[i]) continue;
    for (std::size_t k = 0; k < out[i].data.size(); ++k) {
      out[i].data[k] = out[i].data[k] + factor * t[i].data[k];
    }
  }
  return out;
}

/// Whether y is linear in those operands at these values: f(x + 3 t) = f(x) + 3 f(t), f(0) = 0.
bool linear_in(const Tensor& y, const std::vector<RefArray>& x, const std::vector<RefArray>& t,
               const std::vector<bool>& linear) {
  std::vector<RefArray> zeros = x;
  std::vector<RefArray> only_t = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!linear[i]) continue;
    std::fill(zeros[i].data.begin(), zeros[i].data.end(), 0.0);
    only_t[i] = t[i];
  }
  const RefArray at_zero = run_reference(y, zeros);
  const RefArray at_x = run_reference(y, x);
  const RefArray at_t = run_reference(y, only_t);
  const RefArray at_sum = run_reference(y, combined(x, t, linear, 3));
  for (std::size_t i = 0; i < at_x.data.size(); ++i) {
    const double expected = at_x.data[i] + 3 * at_t.data[i];
    if (at_zero.data[i] != 0) return false;
    if (!(std::fabs(at_sum.data[i] - expected) <= 1e-9 * (1 + std::fabs(expected)))) return false;
  }
  return true;
}

/// <ct, f(t)> == <transpose(ct), t>, at the values that linearity was found at.
void check_adjoint(const Op& op, const Sample& sample, std::size_t number,
                   const std::vector<bool>& linear) {
  Rng rng = rng_for(op, number, 2);
  const std::vector<RefArray> x = draw_operands(sample, rng);
  const std::vector<RefArray> t = draw_directions(sample, linear, rng);
  Bindings bindings;
  const Tensor y = apply(op, sample, bindings.add(x));
  const RefArray ct = draw(y.node().type, -1, 1, rng);
  const std::vector<Tensor> back =
      std::get<TransposeRule>(*op.transpose)(y, bindings.add(ct), linear);
  ASSERT_EQ(back.size(), x.size());
  std::vector<RefArray> only_t = x;
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!linear[i]) continue;
    only_t[i] = t[i];
    ASSERT_TRUE(back[i].defined()) << "operand " << i << " has no cotangent";
    ASSERT_EQ(to_string(back[i].node().type), to_string(x[i].type)) << "operand " << i;
    sum += dot(bindings.evaluate(back[i]), t[i]);
  }
  const double expected = dot(ct, run_reference(y, only_t));
  EXPECT_NEAR(sum, expected, 1e-9 * (1 + std::fabs(expected)));
}

TEST_P(TransposeTest, IsTheAdjoint) {
  const std::vector<Sample> samples = (*op().samples)();
  // Every function without elements is linear in everything, so the operands that an op is linear
  // in are found on samples with a result other than 0.
  std::set<std::vector<bool>> found;
  std::vector<std::pair<std::size_t, std::vector<bool>>> cases;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    if (total_elements(samples[s]) > small_sample || is_half(samples[s])) continue;
    for (const std::vector<bool>& linear : float_subsets(samples[s])) {
      Rng rng = rng_for(op(), s, 2);
      const std::vector<RefArray> x = draw_operands(samples[s], rng);
      const std::vector<RefArray> t = draw_directions(samples[s], linear, rng);
      Bindings bindings;
      const Tensor y = apply(op(), samples[s], bindings.add(x));
      if (!is_floating(y.dtype()) || !linear_in(y, x, t, linear)) continue;
      cases.emplace_back(s, linear);
      const RefArray value = run_reference(y, x);
      if (std::any_of(value.data.begin(), value.data.end(), [](double v) { return v != 0; })) {
        found.insert(linear);
      }
    }
  }
  EXPECT_FALSE(found.empty()) << "no sample is linear in any operand";
  for (const auto& [s, linear] : cases) {
    if (!found.contains(linear)) continue;
    SCOPED_TRACE(describe(op(), samples[s]));
    check_adjoint(op(), samples[s], s, linear);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, TransposeTest, ::testing::ValuesIn(names_where(is_linear)),
                         test_name);

// ---- batching
// ------------------------------------------------------------------------------------

class VmapTest : public RegistryTest {};

RefArray stacked(std::span<const RefArray> parts, const Type& of) {
  RefArray out{of, {}};
  out.type.shape.insert(out.type.shape.begin(), static_cast<std::int64_t>(parts.size()));
  for (const RefArray& p : parts) out.data.insert(out.data.end(), p.data.begin(), p.data.end());
  return out;
}

void check_vmap(const Op& op, const Sample& sample, const std::vector<bool>& batched,
                std::size_t size, Rng& rng) {
  const std::vector<RefArray> shared = draw_operands(sample, rng);
  std::vector<std::vector<RefArray>> examples(size, shared);
  Bindings bindings;
  std::vector<Tensor> operands;
  for (std::size_t i = 0; i < shared.size(); ++i) {
    if (!batched[i]) {
      operands.push_back(bindings.add(shared[i]));
      continue;
    }
    std::vector<RefArray> parts;
    for (std::size_t b = 0; b < size; ++b) {
      examples[b][i] = draw_operand(sample, i, rng);
      parts.push_back(examples[b][i]);
    }
    operands.push_back(bindings.add(stacked(parts, shared[i].type)));
  }
  const Tensor y = apply(op, sample, bindings.add(shared));
  const Tensor z = (*op.vmap)(y, operands, batched, static_cast<std::int64_t>(size));
  std::vector<RefArray> expected;
  for (const auto& example : examples) expected.push_back(run_reference(y, example));
  expect_near(bindings.evaluate(z), stacked(expected, y.node().type), 1e-12, "batch");
}

TEST_P(VmapTest, AgreesWithALoop) {
  const std::vector<Sample> samples = (*op().samples)();
  for (std::size_t s = 0; s < samples.size(); ++s) {
    if (total_elements(samples[s]) > small_sample || is_half(samples[s])) continue;
    const std::size_t arity = samples[s].operands.size();
    for (unsigned mask = 1; mask < 1U << arity; ++mask) {
      std::vector<bool> batched;
      for (std::size_t i = 0; i < arity; ++i) batched.push_back((mask >> i & 1U) != 0);
      for (std::size_t size : {std::size_t{3}, std::size_t{1}, std::size_t{0}}) {
        SCOPED_TRACE(fmt::format("{}, operands {:b} batched, {} examples",
                                 describe(op(), samples[s]), mask, size));
        Rng rng = rng_for(op(), s, 3 + mask);
        check_vmap(op(), samples[s], batched, size, rng);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, VmapTest, ::testing::ValuesIn(names_where(has_samples)), test_name);

}  // namespace
}  // namespace tensorgrad::testing
