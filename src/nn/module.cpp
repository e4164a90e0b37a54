#include "tensorgrad/module.h"

#include <fmt/format.h>

#include <cmath>

#include "graph/node.h"
#include "ops/primitives.h"
#include "tensorgrad/ops.h"
#include "tensorgrad/random.h"

namespace tensorgrad {
namespace {

double checked(const char* what, const char* number, double value, const Site& site) {
  if (!(std::isfinite(value) && value >= 0)) {
    throw ValueError(
        fmt::format("{}: {} is {}, not a finite number of at least 0.", what, number, value), site);
  }
  return value;
}

double fan(const char* what, std::int64_t value, const Site& site) {
  if (value < 0) throw ValueError(fmt::format("{}: the fan is {}.", what, value), site);
  return static_cast<double>(value);
}

/// Throws unless `value` is f32 of `shape`.
void check_fits(const char* what, const char* kind, const std::string& shown, const Shape& shape,
                const Tensor& value, const Site& site) {
  const std::string who =
      shown.empty() ? std::string("a ") + kind : std::string(kind) + " `" + shown + "`";
  if (value.dtype() != DType::f32) {
    throw DTypeError(fmt::format("{}: {} is f32, but the tensor is {}.", what, who,
                                 tensorgrad::name(value.dtype())),
                     site);
  }
  if (value.shape() != shape) {
    throw ShapeError(fmt::format("{}: {} has shape {}, but the tensor has {}.", what, who,
                                 to_string(shape), to_string(value.shape())),
                     site);
  }
}

/// gain / sqrt(fan), and 0 for a layer without inputs.
double scale(double gain, double fan) { return fan > 0 ? gain / std::sqrt(fan) : 0; }

}  // namespace

Init Init::constant(double value, Site site) {
  if (std::isnan(value)) throw ValueError("constant: the value is NaN.", site);
  return {Kind::constant, value, {}};
}
Init Init::uniform(double bound, Site site) {
  return {Kind::uniform, checked("uniform", "the bound", bound, site), {}};
}
Init Init::normal(double std, Site site) {
  return {Kind::normal, checked("normal", "the standard deviation", std, site), {}};
}
Init Init::kaiming_uniform(std::int64_t fan_in, double gain, Site site) {
  checked("kaiming_uniform", "the gain", gain, site);
  return uniform(scale(gain * std::sqrt(3.0), fan("kaiming_uniform", fan_in, site)), site);
}
Init Init::kaiming_normal(std::int64_t fan_in, double gain, Site site) {
  checked("kaiming_normal", "the gain", gain, site);
  return normal(scale(gain, fan("kaiming_normal", fan_in, site)), site);
}
Init Init::xavier_uniform(std::int64_t fan_in, std::int64_t fan_out, double gain, Site site) {
  checked("xavier_uniform", "the gain", gain, site);
  const double sum = fan("xavier_uniform", fan_in, site) + fan("xavier_uniform", fan_out, site);
  return uniform(scale(gain * std::sqrt(6.0), sum), site);
}
Init Init::xavier_normal(std::int64_t fan_in, std::int64_t fan_out, double gain, Site site) {
  checked("xavier_normal", "the gain", gain, site);
  const double sum = fan("xavier_normal", fan_in, site) + fan("xavier_normal", fan_out, site);
  return normal(scale(gain * std::sqrt(2.0), sum), site);
}
Init Init::literal(std::vector<float> values) {
  return {Kind::literal, 0, std::make_shared<const std::vector<float>>(std::move(values))};
}

Tensor Init::make(const Shape& shape, const Tensor& key, Site site) const {
  const SiteScope scope(site);
  switch (kind) {
    case Kind::constant:
      return full(shape, value, DType::f32, site);
    case Kind::uniform:
      return random::uniform(key, shape, -value, value, random::Scheme::original, site);
    case Kind::normal:
      return random::normal(key, shape, random::Scheme::original, site) * value;
    case Kind::literal:
      return array(std::span<const float>(*values), shape, site);
  }
  throw ValueError("make: the kind of initial value is unknown.", site);
}

bool Init::operator==(const Init& other) const {
  const bool same_values =
      values == other.values ||
      (values != nullptr && other.values != nullptr && *values == *other.values);
  return kind == other.kind && value == other.value && same_values;
}

namespace {

/// Makes a parameter or a buffer stand for `value`.
template <class T>
void bind_to(T& held, const char* what, const Tensor& value, std::string as, const Site& site) {
  check_fits("bind", what, as.empty() ? held.name : as, held.shape, value, site);
  held.bound = value;
  if (!as.empty()) held.name = std::move(as);
}

template <class T>
Tensor initial_value_of(const T& held, std::uint64_t seed, std::string_view as, const Site& site) {
  const SiteScope scope(site);
  return held.init.make(held.shape, random::fold_in(random::key(seed), hash32(as)), site);
}

}  // namespace

void Param::bind(const Tensor& value, std::string as, Site site) {
  bind_to(*this, "parameter", value, std::move(as), site);
}
Tensor Param::initial_value(std::uint64_t seed, std::string_view as, Site site) const {
  return initial_value_of(*this, seed, as, site);
}
Tensor Param::tensor() const { return bound.defined() ? bound : initial_value(0, name); }

void Buffer::bind(const Tensor& value, std::string as, Site site) {
  bind_to(*this, "buffer", value, std::move(as), site);
}
Tensor Buffer::initial_value(std::uint64_t seed, std::string_view as, Site site) const {
  return initial_value_of(*this, seed, as, site);
}
Tensor Buffer::tensor() const { return bound.defined() ? bound : initial_value(0, name); }

Tensor assign(const Buffer& buffer, const Tensor& value, const Tensor& result, Site site) {
  check_fits("assign", "buffer", buffer.name, buffer.shape, value, site);
  return prim::assign(buffer.name, result, value, site);
}

}  // namespace tensorgrad
