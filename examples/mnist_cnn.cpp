// A convolutional classifier on Fashion-MNIST: mnist_cnn [STEPS] [FOLDER]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <vector>

#include "tensorgrad/compile.h"
#include "tensorgrad/data.h"
#include "tensorgrad/nn.h"

namespace tg = tensorgrad;

namespace {

struct Cnn {
  tg::nn::Conv2d conv1{1, 16, 3, {.padding = 1}}, conv2{16, 32, 3, {.padding = 1}};
  tg::nn::Linear fc1{1568, 64}, fc2{64, 10};
  TENSORGRAD_FIELDS(conv1, conv2, fc1, fc2)

  tg::Tensor operator()(const tg::Tensor& images) const {
    tg::Tensor x = max_pool2d(relu(conv1(images)), 2);
    x = max_pool2d(relu(conv2(x)), 2);
    return fc2(relu(fc1(flatten(x, 1))));
  }
};

void run(int steps, const char* folder) {
  const tg::FashionMnist data = tg::load_fashion_mnist(folder);
  constexpr std::int64_t batch = 64;
  auto training =
      tg::compile(Cnn{},
                  [](const Cnn& m, const tg::Inputs& in) {
                    return cross_entropy(m(in["images"]), in["labels"]);
                  },
                  {.inputs = {{"images", {batch, 1, 28, 28}}, {"labels", {batch}, tg::DType::i32}},
                   .optimizer = tg::AdamW{.lr = 1e-3},
                   .clip_norm = 1.0});
  // The predicted classes, on the same parameters, for any number of images.
  auto predict = training.attach(
      [](const Cnn& m, const tg::Inputs& in) { return argmax(m(in["images"]), -1); },
      {.inputs = {{"images", {tg::dyn, 1, 28, 28}}}});

  const tg::Batches batches(data.train.count, batch, {.drop_last = true});
  int step = 0;
  for (std::int64_t epoch = 0; step < steps; ++epoch) {
    for (const auto indices : batches.epoch(epoch)) {
      const auto result = training.step({{"images", tg::gather_images(data.train, indices)},
                                         {"labels", tg::gather_labels(data.train, indices)}});
      if (step % 10 == 0) std::printf("step %4d  loss %.4f\n", step, result.loss());
      if (++step == steps) break;
    }
  }

  std::vector<std::int64_t> first(
      static_cast<std::size_t>(std::min<std::int64_t>(data.test.count, 1000)));
  std::iota(first.begin(), first.end(), 0);
  const auto classes =
      predict.run({{"images", tg::gather_images(data.test, first)}}).value<std::int32_t>();
  const auto labels = tg::gather_labels(data.test, first);
  std::size_t right = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) right += classes[i] == labels[i] ? 1 : 0;
  std::printf("%zu of %zu test images are right\n", right, labels.size());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? std::stoi(argv[1]) : 300, argc > 2 ? argv[2] : tg::fashion_mnist_folder);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
