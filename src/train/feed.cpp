// Feeds, captures and results of compiled programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "ops/primitives.h"
#include "train/core.h"

namespace tensorgrad {

const Tensor& Inputs::operator[](std::string_view name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    std::vector<std::string> names;
    for (const auto& [n, t] : tensors_) names.push_back("`" + n + "`");
    throw GraphError(
        fmt::format("There is no input `{}`; the inputs are {}.", name, fmt::join(names, ", ")));
  }
  return it->second;
}

namespace detail {
namespace {

std::string list_names(const std::vector<InputSpec>& specs) {
  std::vector<std::string> names;
  for (const InputSpec& s : specs) names.push_back("`" + s.name + "`");
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string shape_text(const Shape& shape) {
  std::vector<std::string> dims;
  for (std::int64_t d : shape) dims.push_back(d == dyn ? "dyn" : std::to_string(d));
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

}  // namespace

FeedChecker::FeedChecker(std::vector<InputSpec> specs, const Site& site)
    : specs_(std::move(specs)) {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const InputSpec& s = specs_[i];
    if (s.name.empty()) throw GraphError(fmt::format("Input {} has no name.", i), site);
    for (std::size_t j = 0; j < i; ++j) {
      if (specs_[j].name == s.name) {
        throw GraphError(fmt::format("Two inputs are named `{}`.", s.name), site);
      }
    }
    if (std::count(s.shape.begin(), s.shape.end(), dyn) > 1) {
      throw ShapeError(fmt::format("Input `{}` of shape {} has more than one open extent.", s.name,
                                   shape_text(s.shape)),
                       site);
    }
    for (std::int64_t d : s.shape) {
      if (d < 0 && d != dyn) {
        throw ShapeError(fmt::format("Input `{}` has the negative extent {}.", s.name, d), site);
      }
    }
  }
}

bool FeedChecker::open() const {
  return std::any_of(specs_.begin(), specs_.end(), [](const InputSpec& s) {
    return std::find(s.shape.begin(), s.shape.end(), dyn) != s.shape.end();
  });
}

std::vector<Shape> FeedChecker::shapes(const Feed& feed, const Site& site) const {
  for (const auto& [name, view] : feed) {
    const bool known = std::any_of(specs_.begin(), specs_.end(),
                                   [&](const InputSpec& s) { return s.name == name; });
    if (!known) {
      throw GraphError(
          fmt::format("There is no input `{}`; the inputs are {}.", name, list_names(specs_)),
          site);
    }
  }
  std::vector<Shape> out;
  for (const InputSpec& s : specs_) {
    const auto it = feed.find(s.name);
    if (it == feed.end()) {
      throw GraphError(
          fmt::format("Input `{}` is missing; the inputs are {}.", s.name, list_names(specs_)),
          site);
    }
    const HostView& v = it->second;
    if (v.dtype() != s.dtype) {
      throw DTypeError(fmt::format("Input `{}` is fed {} values, but it is {}.", s.name,
                                   name(v.dtype()), name(s.dtype)),
                       site);
    }
    const auto count = static_cast<std::int64_t>(v.bytes().size() / info(s.dtype).bytes);
    Shape shape = s.shape;
    const auto gap = std::find(shape.begin(), shape.end(), dyn);
    if (gap != shape.end()) {
      *gap = 1;
      const std::int64_t rest = numel(shape);
      if (rest == 0 || count % rest != 0) {
        throw ShapeError(fmt::format("Input `{}` is fed {} values, which do not fill {}.", s.name,
                                     count, shape_text(s.shape)),
                         site);
      }
      *gap = count / rest;
    } else if (numel(shape) != count) {
      throw ShapeError(fmt::format("Input `{}` is fed {} values, but {} takes {}.", s.name, count,
                                   shape_text(shape), numel(shape)),
                       site);
    }
    out.push_back(std::move(shape));
  }
  return out;
}

Compiled& CompiledCache::get(const std::vector<Shape>& shapes, const Make& make) {
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if ((*it)->shapes == shapes) {
      entries_.splice(entries_.begin(), entries_, it);
      return *entries_.front();
    }
  }
  entries_.push_front(make(shapes));
  if (entries_.size() > capacity) entries_.pop_back();
  return *entries_.front();
}

std::pair<std::vector<Tensor>, Inputs> make_inputs(const std::vector<InputSpec>& specs,
                                                   const std::vector<Shape>& shapes,
                                                   const Site& site) {
  std::vector<Tensor> list;
  std::map<std::string, Tensor, std::less<>> by_name;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    list.push_back(prim::input(InputRole::input, specs[i].name, {shapes[i], specs[i].dtype}, site));
    by_name[specs[i].name] = list.back();
  }
  return {list, Inputs(std::move(by_name))};
}

std::vector<Named> find_captures(const Tensor& root) {
  std::vector<Named> found;
  for (const Node* n : topological(std::span(&root, 1))) {
    const auto* tag = std::get_if<NameAttr>(&n->attrs);
    if (!tag || *n->op->name != "capture") continue;
    for (const Named& f : found) {
      if (f.name == tag->name) {
        throw GraphError(fmt::format("capture: the name `{}` is used twice; give each capture its "
                                     "own, for example with the layer's number.",
                                     tag->name),
                         n->site);
      }
    }
    found.push_back({tag->name, handle_of(*n)});
  }
  return found;
}

std::vector<Named> find_assignments(const Tensor& root) {
  std::vector<Named> found;
  for (const Node* n : topological(std::span(&root, 1))) {
    const auto* buffer = std::get_if<BufferAttr>(&n->attrs);
    if (!buffer) continue;
    for (const Named& f : found) {
      if (f.name == buffer->name) {
        throw GraphError(fmt::format("assign: buffer `{}` is assigned twice in one step; join the "
                                     "batches that the layer is called with.",
                                     buffer->name),
                         n->site);
      }
    }
    found.push_back({buffer->name, n->operand(1)});
  }
  return found;
}

std::vector<std::span<const std::byte>> ordered(const std::vector<InputSpec>& specs,
                                                const Feed& feed) {
  std::vector<std::span<const std::byte>> out;
  for (const InputSpec& s : specs) out.push_back(feed.find(s.name)->second.bytes());
  return out;
}

std::size_t Outcome::find(std::string_view name, const Site& site) const {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < list_->outputs.size(); ++i) {
    if (list_->outputs[i].first == name) return i;
    names.push_back("`" + list_->outputs[i].first + "`");
  }
  throw GraphError(fmt::format("Nothing is captured as `{}`; {}.", name,
                               names.empty() ? "the program captures nothing"
                                             : fmt::format("there are {}", fmt::join(names, ", "))),
                   site);
}

void Outcome::check_loss(const Site& site) {
  const auto finite = [](float v) { return std::isfinite(v); };
  const auto values = [&](std::size_t i) {
    const auto from = bytes(i);
    std::vector<float> out(from.size() / sizeof(float));
    if (!from.empty()) std::memcpy(out.data(), from.data(), from.size());
    return out;
  };
  if (step_ == 0 || !std::isnan(values(0).at(0))) return;
  std::string where;
  for (std::size_t i = 1; where.empty() && i < list_->outputs.size(); ++i) {
    if (type(i).dtype != DType::f32) continue;
    const std::vector<float> v = values(i);
    if (!std::all_of(v.begin(), v.end(), finite)) {
      where = fmt::format("The first captured tensor that is not finite is `{}`.",
                          list_->outputs[i].first);
    }
  }
  if (where.empty()) {
    where = list_->outputs.size() > 1 ? "All captured tensors are finite."
                                      : "Mark tensors with capture to see where it comes from.";
  }
  throw NotFiniteError(fmt::format("step {}: the loss is NaN. {}", step_, where), site);
}

template <class T>
std::vector<T> copy_out(Outcome& outcome, std::size_t i, const Site& site) {
  if (outcome.type(i).dtype != dtype_of<T>::value) {
    throw DTypeError(fmt::format("The result is {}, not {}.", name(outcome.type(i).dtype),
                                 name(dtype_of<T>::value)),
                     site);
  }
  const auto bytes = outcome.bytes(i);
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace detail

template <class T>
std::vector<T> RunResult::value(Site site) const {
  return detail::copy_out<T>(*outcome_, 0, site);
}
template <class T>
std::vector<T> RunResult::captured(std::string_view name, Site site) const {
  return detail::copy_out<T>(*outcome_, outcome_->find(name, site), site);
}
const Shape& RunResult::shape() const { return outcome_->type(0).shape; }
float StepResult::loss(Site site) const {
  outcome_->check_loss(site);
  return value<float>(site)[0];
}

template std::vector<float> RunResult::value<float>(Site) const;
template std::vector<std::int32_t> RunResult::value<std::int32_t>(Site) const;
template std::vector<std::uint32_t> RunResult::value<std::uint32_t>(Site) const;
template std::vector<Half> RunResult::value<Half>(Site) const;
template std::vector<std::uint8_t> RunResult::value<std::uint8_t>(Site) const;
template std::vector<float> RunResult::captured<float>(std::string_view, Site) const;
template std::vector<std::int32_t> RunResult::captured<std::int32_t>(std::string_view, Site) const;
template std::vector<std::uint32_t> RunResult::captured<std::uint32_t>(std::string_view,
                                                                       Site) const;
template std::vector<Half> RunResult::captured<Half>(std::string_view, Site) const;
template std::vector<std::uint8_t> RunResult::captured<std::uint8_t>(std::string_view, Site) const;

}  // namespace tensorgrad
