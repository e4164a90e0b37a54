// A module with a model that draws random numbers.
#include "tensorgrad/random.h"

#include "tensorgrad/ops.h"
#include "tensorgrad/web.h"

namespace tensorgrad::web {
namespace {

struct Weight {
  Param w{{1}};
  TENSORGRAD_FIELDS(w)
};

// Random bits of a key that is fed, so that the GPU draws them.
Model random_model(const Options& options) {
  auto training =
      compile(Weight{}, [](const Weight& m, const Inputs&) { return sum(square(Tensor(m.w))); },
              {.device = options.device()});
  Model model{training};
  for (const auto& [name, scheme, shape] :
       {std::tuple("original", random::Scheme::original, Shape{5}),
        std::tuple("partitionable", random::Scheme::partitionable, Shape{2, 2})}) {
    model.forwards.emplace(name,
                           training.attach(
                               [s = scheme, extents = shape](const Weight&, const Inputs& in) {
                                 return random::bits(in["key"], extents, s);
                               },
                               {.inputs = {{"key", {2}, DType::u32}}}));
  }
  return model;
}

}  // namespace

void register_models(Models& models) { models.add("random", random_model); }

}  // namespace tensorgrad::web
