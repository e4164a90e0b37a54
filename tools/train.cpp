// `tensorgrad train`: trains a classifier and writes its checkpoint, metrics and report.
#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "command.h"
#include "evaluation.h"
#include "interrupt.h"
#include "models.h"
#include "profile.h"
#include "progress.h"
#include "run.h"
#include "tensorgrad/error.h"
#include "train/core.h"

namespace tensorgrad::tools {
namespace {

struct TrainArguments {
  std::string dataset;
  std::optional<std::string> model;
  std::optional<std::int64_t> epochs, batch;
  std::optional<double> lr;
  std::optional<std::uint64_t> seed;
  std::string device = "auto";
  std::string data = fashion_mnist_folder;
  std::string out = "runs/fashion-mnist";
  bool resume = false, profile = false;
};

// What was asked for; what was not comes from `base`.
RunConfig config_of(const TrainArguments& arguments, RunConfig base, std::int64_t train_images) {
  base.dataset = arguments.dataset;
  base.model = arguments.model.value_or(base.model);
  base.epochs = arguments.epochs.value_or(base.epochs);
  base.batch = arguments.batch.value_or(base.batch);
  base.lr = arguments.lr.value_or(base.lr);
  base.seed = arguments.seed.value_or(base.seed);
  base.train_images = train_images;
  return base;
}

RunConfig defaults_for(const std::string& model) {
  RunConfig config;
  config.model = model;
  config.epochs = model == "mlp" ? 8 : 6;
  config.batch = 128;
  config.lr = 0.002;
  return config;
}

// One training of a run, from wherever it is to its end or to an interrupt.
class Trainer {
 public:
  Trainer(RunConfig config, RunFolder folder, FashionMnist data, Classifier classifier,
          History history)
      : config_(std::move(config)),
        folder_(std::move(folder)),
        data_(std::move(data)),
        classifier_(std::move(classifier)),
        history_(std::move(history)),
        batches_(config_.train_images, config_.batch, {.seed = config_.seed, .drop_last = true}),
        progress_(config_, classifier_.training->steps()) {}

  // Returns the exit code.
  int run() {
    const InterruptGuard guard;
    const std::int64_t per_epoch = config_.steps_per_epoch();
    std::optional<EpochBatches> epoch;
    for (std::int64_t step = classifier_.training->steps(); step < config_.total_steps(); ++step) {
      if (InterruptGuard::interrupted()) return interrupted(step);
      if (!epoch || step % per_epoch == 0) epoch = batches_.epoch(step / per_epoch);
      train_step(step + 1, (*epoch)[step % per_epoch]);
      if ((step + 1) % per_epoch == 0) finish_epoch(step + 1);
    }
    finish();
    return job_done;
  }

 private:
  void train_step(std::int64_t step, std::span<const std::int64_t> indices) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<std::int32_t> labels = gather_labels(data_.train, indices);
    const StepResult result = classifier_.training->step(
        {{"images", gather_images(data_.train, indices, pixel_scaling)}, {"labels", labels}});
    const double loss = result.loss();
    if (!std::isfinite(loss)) {
      throw ValueError(fmt::format(
          "The loss is {} at step {}: the training diverges. A learning rate below {} may help.",
          loss, step, config_.lr));
    }
    const std::int64_t correct = count_correct(result.captured("logits"), labels);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const auto images = static_cast<std::int64_t>(indices.size());
    history_.epoch.add(loss, correct, images);
    history_.window.add(loss, correct, images);
    history_.seconds += took.count();
    const std::int64_t per_epoch = config_.steps_per_epoch();
    if (history_.window.steps >= std::max<std::int64_t>(per_epoch / 50, 1)) {
      history_.steps.push_back(measured(step, history_.window));
      history_.window = {};
    }
    progress_.step(step, took.count(), history_.epoch);
  }

  Metrics measured(std::int64_t step, const RunningMean& mean) const {
    Metrics row;
    row.step = step;
    row.epoch = (step - 1) / config_.steps_per_epoch() + 1;
    row.train_loss = mean.mean_loss();
    row.train_accuracy = mean.accuracy();
    return row;
  }

  void finish_epoch(std::int64_t step) {
    const Evaluation test = evaluate(classifier_.forward, data_.test, 0);
    Metrics row = measured(step, history_.epoch);
    row.test_loss = test.loss;
    row.test_accuracy = test.accuracy;
    row.images_per_second = static_cast<double>(history_.epoch.images) / history_.seconds;
    history_.epochs.push_back(row);
    history_.epoch = {};
    history_.seconds = 0;
    save(step);
    progress_.line(fmt::format(
        "epoch {}/{}  train loss {:.4f}  accuracy {:.2f}%  test loss {:.4f}  accuracy {:.2f}%  "
        "{} images/s",
        row.epoch, config_.epochs, *row.train_loss, 100 * *row.train_accuracy, *row.test_loss,
        100 * *row.test_accuracy, grouped_number(*row.images_per_second)));
  }

  void save(std::int64_t step) const {
    AnyTraining& training = *classifier_.training;
    training.save(folder_.model(),
                  to_metadata(config_, history_, training.core().engine().name(), step));
    write_metrics_csv(folder_.metrics(), history_.all());
  }

  int interrupted(std::int64_t step) {
    save(step);
    progress_.line(
        fmt::format("Interrupted after step {} of {}: the checkpoint {} is saved. "
                    "Continue with --resume.",
                    step, config_.total_steps(), folder_.model().string()));
    return job_failed;
  }

  void finish() {
    constexpr std::size_t sheet = 60;
    const Evaluation test = evaluate(classifier_.forward, data_.test, sheet);
    write_metrics_csv(folder_.metrics(), history_.all());
    write_report(folder_.report(), report(test));
    progress_.line(fmt::format("test accuracy {:.2f}%, test loss {:.4f} on {} images",
                               100 * test.accuracy, test.loss, test.images));
    for (const auto& file : {folder_.model(), folder_.metrics(), folder_.report()}) {
      progress_.line("  " + file.string());
    }
  }

  Report report(const Evaluation& test) const {
    Report page;
    page.title = config_.model == "cnn" ? "CNN on Fashion-MNIST" : "MLP on Fashion-MNIST";
    page.configuration = {
        {"model", config_.model},
        {"parameters", grouped_number(static_cast<double>(classifier_.parameters))},
        {"training images", grouped_number(static_cast<double>(config_.train_images))},
        {"test images", grouped_number(static_cast<double>(test.images))},
        {"epochs", fmt::format("{}", config_.epochs)},
        {"batch", fmt::format("{}", config_.batch)},
        {"highest learning rate", fmt::format("{}", config_.lr)},
        {"optimizer", "AdamW, warm-up and cosine"},
        {"seed", fmt::format("{}", config_.seed)},
        {"device", classifier_.training->core().engine().name()}};
    page.steps = history_.steps;
    page.epochs = history_.epochs;
    page.class_names = data_.class_names;
    page.confusion = test.confusion;
    page.wrong = test.wrong;
    return page;
  }

  RunConfig config_;
  RunFolder folder_;
  FashionMnist data_;
  Classifier classifier_;
  History history_;
  Batches batches_;
  Progress progress_;
};

int train(const TrainArguments& arguments) {
  const RunFolder folder{arguments.out};
  std::optional<RunRecord> saved;
  if (arguments.resume) saved = read_run(folder);
  folder.prepare(1);
  FashionMnist data = load_fashion_mnist(arguments.data);
  const RunConfig base =
      saved ? saved->config : defaults_for(arguments.model.value_or(RunConfig{}.model));
  const RunConfig config = config_of(arguments, base, data.train.count);
  if (saved) check_same_run(saved->config, config, folder);
  if (config.batch > config.train_images) {
    throw ValueError(fmt::format("A batch of {} is more than the {} training images.", config.batch,
                                 config.train_images));
  }

  const auto start = std::chrono::steady_clock::now();
  Classifier classifier = start_classifier(config.model, arguments.device, optimizer_of(config),
                                           config.seed, config.batch);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  // Parameters and two moments, beside the file that they replace, with room for the metadata.
  folder.prepare(static_cast<std::size_t>(classifier.parameters) * 3 * sizeof(float) + (1U << 20));
  if (saved) classifier.training->load(folder.model());
  fmt::print("{} with {} parameters on {}, compiled in {:.2f} s\n", config.model,
             grouped_number(static_cast<double>(classifier.parameters)),
             classifier.training->core().engine().name(), took.count());
  if (saved) {
    fmt::print("continuing after step {} of {}\n", saved->step, config.total_steps());
  } else if (std::filesystem::exists(folder.model())) {
    fmt::print("replacing the run in {} (--resume continues one)\n", folder.path.string());
  }
  if (arguments.profile) {
    detail::TrainingCore& core = classifier.training->core();
    Program& program = *core.compiled()->program;
    if (program.plan() == nullptr) {
      throw UsageError("The device reference interprets graphs and has no kernels to profile.");
    }
    const std::string title =
        fmt::format("training step of {} on {}", config.model, core.engine().name());
    write_profile(folder.path, "profile", profile_step(title, program, core.engine()));
    fmt::print("wrote {} and profile.trace.json\n", (folder.path / "profile.txt").string());
  }
  std::fflush(stdout);
  Trainer trainer(config, folder, std::move(data), std::move(classifier),
                  saved ? saved->history : History{});
  return trainer.run();
}

}  // namespace

Subcommand add_train(CLI::App& parent) {
  CLI::App* parser =
      parent.add_subcommand("train", "Trains a classifier of images and writes a report.");
  const auto arguments = std::make_shared<TrainArguments>();
  TrainArguments& a = *arguments;
  parser->add_option("dataset", a.dataset, "The data set: fashion-mnist")
      ->required()
      ->type_name("DATASET")
      ->check(CLI::IsMember({"fashion-mnist"}));
  parser->add_option("--model", a.model, "mlp or cnn (default: cnn)")
      ->type_name("NAME")
      ->check(CLI::IsMember(model_names()));
  parser
      ->add_option("--epochs", a.epochs, "Passes over the training images (default: cnn 6, mlp 8)")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100000}));
  parser->add_option("--batch", a.batch, "Images a step (default: 128)")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  parser->add_option("--lr", a.lr, "Highest learning rate of the schedule (default: 0.002)")
      ->type_name("RATE")
      ->check([](const std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value > 0) return {};
        return fmt::format("The learning rate is {}, not a finite number above 0.", text);
      });
  parser
      ->add_option("--seed", a.seed,
                   "Of initial values, dropout and the order of the images (default: 0)")
      ->type_name("N")
      ->check([](const std::string& text) -> std::string {
        if (text.find_first_not_of("0123456789") == std::string::npos) return {};
        return fmt::format("The seed is {}, not a whole number of at least 0.", text);
      });
  add_device_option(*parser, a.device);
  add_data_option(*parser, a.data);
  parser->add_option("--out", a.out, fmt::format("Folder of the run (default: {})", a.out))
      ->type_name("DIR");
  parser->add_flag("--resume", a.resume, "Continue the run in --out, with its options");
  parser->add_flag("--profile", a.profile,
                   "First write the device time of each kernel of a step to --out, as a table "
                   "(profile.txt) and as a trace for Perfetto (profile.trace.json)");
  parser->footer(
      "Writes model.safetensors (after every epoch), metrics.csv and report.html to --out.\n"
      "Ctrl-C finishes the step, saves a checkpoint and ends with exit code 1. --resume goes on\n"
      "from there to the same parameters, bit for bit, as if the run had never stopped.\n"
      "\n"
      "Examples:\n"
      "  tensorgrad train fashion-mnist\n"
      "  tensorgrad train fashion-mnist --model mlp --epochs 10 --out runs/mlp\n"
      "  tensorgrad train fashion-mnist --out runs/mlp --resume");
  return {parser, [arguments] { return train(*arguments); }};
}

}  // namespace tensorgrad::tools
