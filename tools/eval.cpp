// `tensorgrad eval`: how well a run's model does on the test images.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "evaluation.h"
#include "models.h"
#include "run.h"
#include "train/core.h"

namespace tensorgrad::tools {
namespace {

struct EvalArguments {
  std::string run;
  std::string device = "auto";
  std::string data = fashion_mnist_folder;
  bool json = false;
};

int eval(const EvalArguments& arguments) {
  const RunFolder folder{arguments.run};
  const RunRecord run = read_run(folder);
  const FashionMnist data = load_fashion_mnist(arguments.data);
  // An open batch, since the training step is not run and so need not be compiled.
  Classifier classifier =
      start_classifier(run.config.model, arguments.device, run.optimizer, run.config.seed, dyn);
  classifier.training->load(folder.model());
  const Evaluation test = evaluate(classifier.forward, data.test, 0);
  const std::string device = classifier.training->core().engine().name();
  if (arguments.json) {
    const nlohmann::ordered_json result{{"run", arguments.run},
                                        {"dataset", run.config.dataset},
                                        {"model", run.config.model},
                                        {"parameters", classifier.parameters},
                                        {"step", run.step},
                                        {"steps", run.config.total_steps()},
                                        {"device", device},
                                        {"images", test.images},
                                        {"accuracy", test.accuracy},
                                        {"loss", test.loss},
                                        {"classes", data.class_names},
                                        {"confusion", test.confusion}};
    fmt::print("{}\n", result.dump());
    return job_done;
  }
  fmt::print("{}: {} on {}, after step {} of {}, on {}\n", arguments.run, run.config.model,
             run.config.dataset, run.step, run.config.total_steps(), device);
  fmt::print("test accuracy {:.2f}%, test loss {:.4f} on {} images\n", 100 * test.accuracy,
             test.loss, test.images);
  return job_done;
}

}  // namespace

Subcommand add_eval(CLI::App& parent) {
  CLI::App* parser =
      parent.add_subcommand("eval", "Evaluates a run's model on the test images of its data set.");
  const auto arguments = std::make_shared<EvalArguments>();
  parser->add_option("--run", arguments->run, "Folder of the run, as `train --out` made it")
      ->required()
      ->type_name("DIR");
  add_device_option(*parser, arguments->device);
  add_data_option(*parser, arguments->data);
  parser->add_flag("--json", arguments->json,
                   "One JSON object with `accuracy` (0 to 1), `loss`, `confusion` and more");
  parser->footer(
      "Examples:\n"
      "  tensorgrad eval --run runs/fashion-mnist\n"
      "  tensorgrad eval --run runs/fashion-mnist --json");
  return {parser, [arguments] { return eval(*arguments); }};
}

}  // namespace tensorgrad::tools
