#include "models.h"

#include <fmt/core.h>

namespace tensorgrad::tools {
namespace {

template <class Model>
Classifier start(const std::string& device, const Optimizer& optimizer, std::uint64_t seed,
                 std::int64_t batch) {
  const auto loss = [](const Model& model, const Inputs& in) {
    return cross_entropy(capture("logits", model(in["images"])), in["labels"]);
  };
  auto training = std::make_shared<Training<Model>>(
      compile(Model{}, loss,
              {.inputs = {{"images", {batch, 1, 28, 28}}, {"labels", {batch}, DType::i32}},
               .optimizer = optimizer,
               .device = device,
               .seed = seed}));
  Forward forward =
      training->attach([](const Model& model, const Inputs& in) { return model(in["images"]); },
                       {.inputs = {{"images", {dyn, 1, 28, 28}}}});
  return {std::move(training), std::move(forward), parameter_count(Model{})};
}

}  // namespace

Tensor Mlp::operator()(const Tensor& images) const {
  const Tensor x = relu(fc1(flatten(images, 1)));
  return fc3(relu(fc2(x)));
}

Tensor Cnn::operator()(const Tensor& images) const {
  Tensor x = max_pool2d(relu(conv1(images)), 2);
  x = max_pool2d(relu(conv2(x)), 2);
  x = relu(fc1(flatten(x, 1)));
  return fc2(dropout(x, 0.25));
}

std::vector<std::string> model_names() { return {"mlp", "cnn"}; }

Classifier start_classifier(const std::string& model, const std::string& device,
                            const Optimizer& optimizer, std::uint64_t seed, std::int64_t batch) {
  if (model == "mlp") return start<Mlp>(device, optimizer, seed, batch);
  if (model == "cnn") return start<Cnn>(device, optimizer, seed, batch);
  throw ValueError(fmt::format("There is no model \"{}\"; the known ones are mlp, cnn.", model));
}

}  // namespace tensorgrad::tools
