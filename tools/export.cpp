// `tensorgrad export`: a run's model as one file that a web page runs.
#include <fmt/core.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "command.h"
#include "evaluation.h"
#include "models.h"
#include "run.h"
#include "tensorgrad/io.h"
#include "tensorgrad/web.h"

namespace tensorgrad::tools {
namespace {

struct ExportArguments {
  std::string run;
  std::string out;
  std::vector<std::int64_t> sizes{1};
  std::string adapter;
  bool inference = false;
  bool json = false;
};

int export_run(const ExportArguments& arguments) {
  for (const std::int64_t size : arguments.sizes) {
    if (size < 1) throw UsageError(fmt::format("A batch of {} images makes no sense.", size));
  }
  const RunFolder folder{arguments.run};
  const RunRecord run = read_run(folder);
  const std::string device = arguments.adapter.empty() ? "web" : "web:" + arguments.adapter;
  Classifier classifier = start_classifier(run.config.model, device, run.optimizer, run.config.seed,
                                           arguments.inference ? dyn : run.config.batch);
  classifier.training->load(folder.model());
  std::map<std::string, std::string> metadata = read_safetensors(folder.model()).metadata;
  // A page has to scale pictures as training did.
  metadata["pixel_mean"] = fmt::format("{}", pixel_scaling.mean);
  metadata["pixel_standard_deviation"] = fmt::format("{}", pixel_scaling.standard_deviation);
  const std::vector<std::byte> bundle = web::make_bundle(
      {*classifier.training, {{"logits", classifier.forward}}},
      {.sizes = arguments.sizes, .trains = !arguments.inference, .metadata = std::move(metadata)});
  const std::span<const std::byte> part(bundle);
  write_file_atomically(arguments.out, std::span(&part, 1));
  if (arguments.json) {
    const nlohmann::ordered_json result{{"run", arguments.run},
                                        {"out", arguments.out},
                                        {"bytes", bundle.size()},
                                        {"step", run.step},
                                        {"trains", !arguments.inference}};
    fmt::print("{}\n", result.dump());
  } else {
    fmt::print("{}: {} after step {}, {} bytes, {}\n", arguments.out, run.config.model, run.step,
               bundle.size(), arguments.inference ? "for inference" : "for inference and training");
  }
  return job_done;
}

}  // namespace

Subcommand add_export(CLI::App& parent) {
  CLI::App* parser = parent.add_subcommand(
      "export", "Writes a run's model as one file that a web page runs on WebGPU.");
  const auto arguments = std::make_shared<ExportArguments>();
  parser->add_option("--run", arguments->run, "Folder of the run, as `train --out` made it")
      ->required()
      ->type_name("DIR");
  parser->add_option("--out", arguments->out, "The file to write")->required()->type_name("FILE");
  parser
      ->add_option("--batch", arguments->sizes,
                   "Numbers of images that the page classifies at once")
      ->delimiter(',')
      ->type_name("N,...")
      ->capture_default_str();
  parser
      ->add_option("--adapter", arguments->adapter,
                   "The adapter to make the programs for, as JSON with WebGPU's names: "
                   "{\"limits\": {...}, \"features\": [...]}; by default what every adapter has")
      ->type_name("JSON");
  parser->add_flag("--inference", arguments->inference,
                   "Leave out the training step and the optimizer's state");
  parser->add_flag("--json", arguments->json, "Say what was written as one JSON object");
  parser->footer(
      "Examples:\n"
      "  tensorgrad export --run runs/fashion-mnist --out garments.tg\n"
      "  tensorgrad export --run runs/fashion-mnist --out garments.tg --inference --batch 1,100");
  return {parser, [arguments] { return export_run(*arguments); }};
}

}  // namespace tensorgrad::tools
