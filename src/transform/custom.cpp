// Functions with a derivative of their own: custom_vjp and checkpoint.
#include "ops/custom.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ops/primitives.h"
#include "tensorgrad/transforms.h"
#include "transform/derivative.h"

namespace tensorgrad::detail {
namespace {

// ---- several results as one tensor, since a node has one -----------------------------------------

std::vector<Type> types_of(std::span<const Tensor> tensors) {
  std::vector<Type> out;
  for (const Tensor& t : tensors) out.push_back(t.node().type);
  return out;
}

Tensor pack(std::span<const Tensor> tensors) {
  if (tensors.size() == 1) return tensors[0];
  std::vector<Tensor> flat;
  for (const Tensor& t : tensors) flat.push_back(prim::reshape(t, {t.size()}));
  return prim::concat(flat, 0);
}

std::vector<Tensor> unpack(const Tensor& packed, std::span<const Type> types) {
  if (types.size() == 1) return {packed};
  std::vector<Tensor> out;
  std::int64_t at = 0;
  for (const Type& t : types) {
    const std::int64_t size = numel(t.shape);
    out.push_back(prim::reshape(prim::slice(packed, {at}, {at + size}, {1}), t.shape));
    at += size;
  }
  return out;
}

// `outputs` with the floating ones replaced, in order.
std::vector<Tensor> with_floats(std::span<const Tensor> outputs, std::span<const Tensor> floats) {
  std::vector<Tensor> out;
  std::size_t next = 0;
  for (const Tensor& y : outputs) out.push_back(is_floating(y.dtype()) ? floats[next++] : y);
  return out;
}

std::vector<Tensor> floats_of(std::span<const Tensor> tensors) {
  std::vector<Tensor> out;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(out),
               [](const Tensor& t) { return is_floating(t.dtype()); });
  return out;
}

// ---- custom_vjp ----------------------------------------------------------------------------------

class FunctionRule : public CustomRule {
 public:
  FunctionRule(std::vector<Type> inputs, std::vector<Type> outputs, PullBack pull_back,
               const Site& site)
      : CustomRule(inputs.size()),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        pull_back_(std::move(pull_back)),
        site_(site) {}

  std::vector<Tensor> pull(std::span<const Tensor>, std::span<const Tensor> residuals,
                           const Tensor& cotangent) const override {
    std::vector<Type> floats;
    std::copy_if(outputs_.begin(), outputs_.end(), std::back_inserter(floats),
                 [](const Type& t) { return is_floating(t.dtype); });
    const std::vector<Tensor> given = unpack(cotangent, floats);
    std::vector<Tensor> cotangents;
    std::size_t next = 0;
    for (const Type& t : outputs_) {
      cotangents.push_back(is_floating(t.dtype) ? given[next++] : prim::full(t.shape, 0, t.dtype));
    }
    std::vector<Tensor> back = pull_back_(residuals, cotangents);
    if (back.size() != inputs_.size()) {
      throw GraphError(fmt::format("custom_vjp: backward returns {} tensors for arguments of {}.",
                                   back.size(), inputs_.size()),
                       site_);
    }
    for (std::size_t i = 0; i < back.size(); ++i) {
      if (!is_floating(inputs_[i].dtype)) back[i] = {};
      if (back[i].defined() && !(back[i].node().type == inputs_[i])) {
        throw ShapeError(fmt::format("custom_vjp: backward returns {} for tensor {} of the "
                                     "arguments, which is {}.",
                                     to_string(back[i].node().type), i, to_string(inputs_[i])),
                         site_);
      }
    }
    return back;
  }

  // The transpose of what `backward` does to a cotangent.
  Tensor push(std::span<const Tensor> inputs, std::span<const Tensor> residuals,
              std::span<const Tensor> tangents) const override {
    std::vector<Type> floats;
    std::int64_t size = 0;
    for (const Type& t : outputs_) {
      if (!is_floating(t.dtype)) continue;
      floats.push_back(t);
      size += numel(t.shape);
    }
    const Type type = floats.size() == 1 ? floats[0] : Type{{size}, floats[0].dtype};
    const Tensor cotangent = prim::input(InputRole::argument, "cotangent", type, site_);
    const std::vector<Tensor> back = pull(inputs, residuals, cotangent);
    std::vector<Tensor> results;
    std::vector<Tensor> directions;
    for (std::size_t i = 0; i < back.size(); ++i) {
      if (!back[i].defined() || !tangents[i].defined()) continue;
      results.push_back(back[i]);
      directions.push_back(tangents[i]);
    }
    if (results.empty()) return {};
    Tensor out = vjp_or_zeros(results, std::span(&cotangent, 1), directions)[0];
    if (!out.defined()) return {};
    for (const Node* n : topological(std::span(&out, 1))) {
      if (n == &cotangent.node()) {
        throw GraphError(
            "custom_vjp: a forward-mode derivative is asked for, but backward is not linear in "
            "the cotangent.",
            site_);
      }
    }
    return out;
  }

 private:
  std::vector<Type> inputs_, outputs_;
  PullBack pull_back_;
  Site site_;
};

// ---- checkpoint ----------------------------------------------------------------------------------

/// A function as nodes over placeholders of its own.
struct Closed {
  Tensor result;
  std::vector<Tensor> placeholders;

  Tensor operator()(std::span<const Tensor> inputs) const {
    std::unordered_map<const Node*, Tensor> map;
    for (std::size_t i = 0; i < inputs.size(); ++i) map[&placeholders[i].node()] = inputs[i];
    for (const Node* n : topological(std::span(&result, 1))) {
      if (map.contains(n)) continue;
      if (n->operands.empty()) {
        map[n] = handle_of(*n);
        continue;
      }
      std::vector<Tensor> operands;
      for (const Tensor& o : n->operands) operands.push_back(map.at(&o.node()));
      map[n] = remake(*n, std::move(operands));
    }
    return map.at(&result.node());
  }
};

class RecomputeRule : public CustomRule {
 public:
  /// The first `arguments` inputs are what everything else is computed from.
  RecomputeRule(Closed f, std::size_t arguments)
      : CustomRule(f.placeholders.size()), f_(std::move(f)), arguments_(arguments) {}

  std::vector<Tensor> pull(std::span<const Tensor> inputs, std::span<const Tensor>,
                           const Tensor& cotangent) const override {
    // Behind the barrier nothing is the same node as in the forward pass, and nothing is computed
    // before the cotangent has come back this far.
    std::vector<Tensor> again;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      again.push_back(i < arguments_ ? prim::barrier(inputs[i], cotangent)
                                     : prim::identity(inputs[i]));
    }
    const Tensor y = f_(again);
    const std::vector<Tensor> by = floats_of(again);
    const std::vector<Tensor> back = vjp_or_zeros(std::span(&y, 1), by, std::span(&cotangent, 1));
    std::vector<Tensor> out;
    std::size_t next = 0;
    for (const Tensor& x : again) out.push_back(is_floating(x.dtype()) ? back[next++] : Tensor());
    return out;
  }

  Tensor push(std::span<const Tensor> inputs, std::span<const Tensor>,
              std::span<const Tensor> tangents) const override {
    std::vector<Tensor> at;
    std::vector<Tensor> by;
    std::vector<Tensor> along;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      at.push_back(prim::identity(inputs[i]));
      if (!tangents[i].defined()) continue;
      by.push_back(at.back());
      along.push_back(tangents[i]);
    }
    const Tensor y = f_(at);
    return jvp_or_zeros(std::span(&y, 1), by, along)[0];
  }

 private:
  Closed f_;
  std::size_t arguments_;
};

}  // namespace

std::vector<Tensor> custom_vjp(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                               std::span<const Tensor> residuals, PullBack pull_back,
                               const Site& site) {
  const SiteScope scope(site);
  const std::vector<Tensor> floats = floats_of(outputs);
  if (floats.empty()) return {outputs.begin(), outputs.end()};
  const Tensor value =
      prim::custom(pack(floats), inputs, residuals,
                   std::make_shared<FunctionRule>(types_of(inputs), types_of(outputs),
                                                  std::move(pull_back), site),
                   site);
  return with_floats(outputs, unpack(value, types_of(floats)));
}

std::vector<Tensor> checkpoint(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                               const Site& site) {
  const std::vector<Tensor> floats = floats_of(outputs);
  if (floats.empty()) return {outputs.begin(), outputs.end()};
  const Tensor result = pack(floats);

  // Between the arguments and the result; what it reads from elsewhere are further inputs.
  std::unordered_set<const Node*> inside;
  for (const Tensor& x : inputs) inside.insert(&x.node());
  std::vector<const Node*> order;
  for (const Node* n : topological(std::span(&result, 1), inputs)) {
    const bool depends = std::any_of(n->operands.begin(), n->operands.end(),
                                     [&](const Tensor& o) { return inside.contains(&o.node()); });
    if (!inside.contains(n) && depends) {
      inside.insert(n);
      order.push_back(n);
    }
  }
  if (!inside.contains(&result.node())) return {outputs.begin(), outputs.end()};

  Closed closed;
  std::vector<Tensor> all(inputs.begin(), inputs.end());
  std::unordered_map<const Node*, Tensor> map;
  const auto stand_in = [&](const Tensor& t) {
    closed.placeholders.push_back(
        prim::input(InputRole::argument, "argument", t.node().type, t.node().site));
    map[&t.node()] = closed.placeholders.back();
  };
  for (const Tensor& x : inputs) stand_in(x);
  for (const Node* n : order) {
    std::vector<Tensor> operands;
    for (const Tensor& o : n->operands) {
      if (!map.contains(&o.node())) {
        if (lowering_as<LowerGenerate>(o.node())) {
          map[&o.node()] = o;
        } else {
          stand_in(o);
          all.push_back(o);
        }
      }
      operands.push_back(map.at(&o.node()));
    }
    map[n] = remake(*n, std::move(operands));
  }
  closed.result = map.at(&result.node());
  const Tensor value = prim::custom(
      result, all, {}, std::make_shared<RecomputeRule>(std::move(closed), inputs.size()), site);
  return with_floats(outputs, unpack(value, types_of(floats)));
}

}  // namespace tensorgrad::detail
