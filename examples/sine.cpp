// Learns a sine: a model is a struct, its forward pass a plain function, a step one compiled
// program.
#include <tensorgrad/compile.h>
#include <tensorgrad/nn.h>

#include <cmath>
#include <cstdio>
#include <vector>

namespace tg = tensorgrad;

struct Sine {
  tg::nn::Linear l1{1, 64}, l2{64, 64}, l3{64, 1};
  TENSORGRAD_FIELDS(l1, l2, l3)
  tg::Tensor operator()(const tg::Tensor& x) const { return l3(relu(l2(relu(l1(x))))); }
};

int main() {
  std::vector<float> x, y;
  for (int i = 0; i < 256; ++i) {
    x.push_back(static_cast<float>(i - 128) * 0.025F);
    y.push_back(std::sin(x.back()));
  }
  auto training = tg::compile(
      Sine{}, [](const Sine& m, const tg::Inputs& in) { return mse_loss(m(in["x"]), in["y"]); },
      {.inputs = {{"x", {256, 1}}, {"y", {256, 1}}}, .optimizer = tg::Adam{.lr = 0.005}});
  for (int step = 0; step <= 1000; ++step) {
    const auto result = training.step({{"x", x}, {"y", y}});
    if (step % 100 == 0) std::printf("step %4d  loss %.6f\n", step, result.loss());
  }
}
