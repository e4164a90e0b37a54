#include "train/engine.h"

#include "runtime/web/engine.h"
#ifndef TENSORGRAD_WITHOUT_REFERENCE
#include "runtime/reference/engine.h"
#endif

namespace tensorgrad {
namespace {

class DeviceProgram : public Program {
 public:
  DeviceProgram(Device& device, bool tune, const Graph& graph, std::vector<PassReport>* report)
      : plan_(make_plan(graph, device.target(), PassOptions::from_environment(), report)) {
    if (tune) device.tune(plan_, false, {});
    executable_ = device.load(plan_);
  }
  std::unique_ptr<Completion> run(std::span<const std::span<const std::byte>> inputs,
                                  std::span<DeviceBuffer* const> states) override {
    return executable_->run(inputs, states);
  }
  const Plan* plan() const override { return &plan_; }
  Executable* executable() override { return executable_.get(); }

 private:
  Plan plan_;
  std::unique_ptr<Executable> executable_;
};

class DeviceEngine : public Engine {
 public:
  DeviceEngine(std::shared_ptr<Device> device, bool tune)
      : device_(std::move(device)), tune_(tune) {}
  std::string name() const override { return device_->info().name; }
  std::unique_ptr<DeviceBuffer> allocate(DType dtype, std::int64_t elements) override {
    return device_->allocate(dtype, elements);
  }
  std::unique_ptr<Program> load(const Graph& graph, std::vector<PassReport>* report) override {
    return std::make_unique<DeviceProgram>(*device_, tune_, graph, report);
  }

 private:
  std::shared_ptr<Device> device_;
  bool tune_;
};

}  // namespace

std::shared_ptr<Engine> open_engine(const std::string& device, bool tune) {
#ifndef TENSORGRAD_WITHOUT_REFERENCE
  if (device == "reference") return make_reference_engine();
#endif
  if (device == "web" || device.starts_with("web:")) return web::make_engine(device);
  return std::make_shared<DeviceEngine>(open_device(device), tune);
}

std::shared_ptr<Engine> default_engine() {
  static const std::shared_ptr<Engine> engine = open_engine("auto");
  return engine;
}

}  // namespace tensorgrad
