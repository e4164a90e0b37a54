// The built command, run as a program on a small data set of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "data/idx_file.h"
#include "io/temp_folder.h"
#include "runtime/device.h"
#include "tensorgrad/io.h"
#include "tools/process.h"

namespace tensorgrad::tools {
namespace {

using nlohmann::json;
using test::Process;
using test::ProcessResult;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int train_images = 200, test_images = 50;

// Images whose class is the row that is bright, so that a few steps learn something.
void write_part(const std::filesystem::path& folder, const std::string& part, unsigned count,
                unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> images, labels;
  for (unsigned i = 0; i < count; ++i) {
    const unsigned label = i % 10;
    labels.push_back(static_cast<std::uint8_t>(label));
    for (unsigned p = 0; p < 784; ++p) {
      const unsigned noise = random() % 64;
      images.push_back(static_cast<std::uint8_t>(p / 56 == label ? 255 - noise : noise));
    }
  }
  test::put(folder / (part + "-images-idx3-ubyte"), test::idx_file(0x08, {count, 28, 28}, images));
  test::put(folder / (part + "-labels-idx1-ubyte"), test::idx_file(0x08, {count}, labels));
}

class CommandTest : public testing::Test {
 protected:
  CommandTest() {
    std::filesystem::create_directory(data());
    write_part(data(), "train", train_images, 1);
    write_part(data(), "t10k", test_images, 2);
  }

  void SetUp() override {
    if (backends().empty()) GTEST_SKIP() << "this build has no device to train on";
  }

  std::filesystem::path data() const { return folder_ / "data"; }
  std::filesystem::path run_folder(const std::string& name = "run") const { return folder_ / name; }

  static std::vector<std::string> command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TENSORGRAD_COMMAND);
    return arguments;
  }
  ProcessResult run(std::vector<std::string> arguments) const {
    return Process(command(std::move(arguments)), folder_.path()).wait();
  }
  std::vector<std::string> train(const std::string& out, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"train", "fashion-mnist", "--data",  data(),
                                       "--out", run_folder(out), "--batch", "20"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  test::TempFolder folder_;
};

// Two checkpoints hold the same bits; metadata is not compared, since it has times in it.
void expect_same_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  const SafeTensors left = read_safetensors(a), right = read_safetensors(b);
  ASSERT_EQ(left.tensors.size(), right.tensors.size());
  ASSERT_FALSE(left.tensors.empty());
  for (const SafeTensor& t : left.tensors) {
    const SafeTensor& u = right.at(t.name);
    ASSERT_EQ(t.bytes.size(), u.bytes.size()) << t.name;
    EXPECT_EQ(std::memcmp(t.bytes.data(), u.bytes.data(), t.bytes.size()), 0) << t.name;
  }
  EXPECT_EQ(left.metadata.at("step"), right.metadata.at("step"));
}

TEST_F(CommandTest, TrainsAndWritesEveryFile) {
  const ProcessResult r = run(train("run", {"--model", "mlp", "--epochs", "2"}));
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("epoch 1/2  step 1/10  loss "));
  EXPECT_THAT(r.out, HasSubstr("test accuracy "));
  for (const char* name : {"model.safetensors", "metrics.csv", "report.html"}) {
    EXPECT_TRUE(std::filesystem::exists(run_folder() / name)) << name;
    EXPECT_THAT(r.out, HasSubstr((run_folder() / name).string()));
  }
  const auto metadata = read_safetensors(run_folder() / "model.safetensors").metadata;
  EXPECT_EQ(metadata.at("model"), "mlp");
  EXPECT_EQ(metadata.at("step"), "20");
  EXPECT_EQ(metadata.at("epoch"), "2");
  EXPECT_EQ(metadata.at("batch"), "20");

  const auto csv = read_file(run_folder() / "metrics.csv");
  const std::string_view text(reinterpret_cast<const char*>(csv.data()), csv.size());
  EXPECT_THAT(text, StartsWith("step,epoch,train_loss,"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 1 + 20 + 2);  // header, steps, epochs

  const auto html = read_file(run_folder() / "report.html");
  const std::string_view page(reinterpret_cast<const char*>(html.data()), html.size());
  EXPECT_THAT(page,
              AllOf(HasSubstr("MLP on Fashion-MNIST"), HasSubstr("<svg"), HasSubstr("Ankle boot")));
}

TEST_F(CommandTest, LearnsAndEvaluates) {
  const ProcessResult trained = run(train("run", {"--model", "cnn", "--epochs", "6"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const ProcessResult r = run({"eval", "--run", run_folder(), "--data", data(), "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json result = json::parse(r.out);
  EXPECT_EQ(result.at("images"), test_images);
  EXPECT_EQ(result.at("model"), "cnn");
  EXPECT_GT(result.at("accuracy").get<double>(), 0.9);
  EXPECT_LT(result.at("loss").get<double>(), 1.0);
  int counted = 0;
  for (const auto& row : result.at("confusion")) {
    for (const auto& n : row) counted += n.get<int>();
  }
  EXPECT_EQ(counted, test_images);

  const ProcessResult reference =
      run({"eval", "--run", run_folder(), "--data", data(), "--json", "--device", "reference"});
  ASSERT_EQ(reference.exit_code, 0) << reference.err;
  EXPECT_NEAR(json::parse(reference.out).at("loss").get<double>(), result.at("loss").get<double>(),
              1e-4);
}

TEST_F(CommandTest, InterruptedAndResumedIsBitIdentical) {
  const std::vector<std::string> options{"--model", "cnn", "--epochs", "3", "--seed", "5"};
  const ProcessResult whole = run(train("whole", options));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;

  Process process(command(train("parts", options)), folder_.path());
  ASSERT_TRUE(process.wait_for("step 1/10"));
  process.send(SIGINT);
  const ProcessResult stopped = process.wait();
  // A fast machine may be done before the signal comes; then there is nothing left to resume.
  if (stopped.out.find("Interrupted") != std::string::npos) {
    EXPECT_EQ(stopped.exit_code, 1);
    EXPECT_THAT(stopped.out, HasSubstr("model.safetensors is saved"));
    EXPECT_LT(
        std::stoi(read_safetensors(run_folder("parts") / "model.safetensors").metadata.at("step")),
        30);
  }
  const ProcessResult resumed = run(train("parts", {"--resume"}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("continuing after step"));
  expect_same_tensors(run_folder("whole") / "model.safetensors",
                      run_folder("parts") / "model.safetensors");
  // Losses and accuracies of the steps before the stop are in the files as well.
  const auto lines = [](const std::filesystem::path& path) {
    const auto bytes = read_file(path);
    std::vector<std::string> kept;
    std::istringstream text(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    for (std::string line; std::getline(text, line);) {
      kept.push_back(line.substr(0, line.rfind(',')));  // all but the speed
    }
    return kept;
  };
  EXPECT_EQ(lines(run_folder("whole") / "metrics.csv"), lines(run_folder("parts") / "metrics.csv"));
}

TEST_F(CommandTest, ResumeNamesWhatDiffers) {
  const ProcessResult none = run(train("run", {"--resume"}));
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_EQ(none.err, "error: There is no run in " + run_folder().string() +
                          ": it has no model.safetensors.\n");

  ASSERT_EQ(run(train("run", {"--model", "mlp", "--epochs", "1"})).exit_code, 0);
  const ProcessResult other = run(train("run", {"--resume", "--model", "cnn", "--lr", "0.5"}));
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_EQ(other.err, "error: The run in " + run_folder().string() +
                           " has model mlp, not cnn, --lr 0.002, not 0.5: resume it as it was "
                           "started, or choose another --out.\n");
}

TEST_F(CommandTest, ErrorsOfUsageExitWithTwo) {
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  const std::vector<Case> cases{
      {{}, "subcommand is required"},
      {{"fly"}, "There is no subcommand \"fly\"."},
      {{"train"}, "dataset is required"},
      {{"train", "cifar"}, "cifar"},
      {train("run", {"--model", "gpt"}), "gpt"},
      {train("run", {"--batch", "0"}), "Value 0 not in range 1 to"},
      {train("run", {"--epochs", "-1"}), "Value -1 not in range 1 to"},
      {train("run", {"--lr", "nan"}), "The learning rate is nan, not a finite number above 0."},
      {train("run", {"--lr", "0"}), "The learning rate is 0, not a finite number above 0."},
      {train("run", {"--seed", "-1"}), "The seed is -1, not a whole number of at least 0."},
      {train("run", {"--device", "abacus"}),
       "There is no device \"abacus\"; the known ones are auto"},
      {{"eval"}, "--run is required"},
      {{"inspect", "W99"}, "\"W99\" is neither the folder of a run nor a list of workloads"},
  };
  for (const Case& c : cases) {
    const ProcessResult r = run(c.arguments);
    EXPECT_EQ(r.exit_code, 2) << c.message << r.out << r.err;
    EXPECT_THAT(r.err, AllOf(StartsWith("error: "), HasSubstr(c.message)));
    EXPECT_EQ(r.out, "");
  }
  EXPECT_FALSE(std::filesystem::exists(run_folder()));
}

TEST_F(CommandTest, FailedJobsExitWithOne) {
  const ProcessResult no_data =
      run({"train", "fashion-mnist", "--data", folder_ / "nowhere", "--out", run_folder()});
  EXPECT_EQ(no_data.exit_code, 1);
  EXPECT_THAT(no_data.err, AllOf(StartsWith("error: "), HasSubstr("dataset-fashion-mnist")));

  const ProcessResult no_run = run({"eval", "--run", folder_ / "nowhere"});
  EXPECT_EQ(no_run.exit_code, 1);
  EXPECT_THAT(no_run.err, StartsWith("error: There is no run in "));

  const ProcessResult big =
      run({"train", "fashion-mnist", "--data", data(), "--out", run_folder(), "--batch", "201"});
  EXPECT_EQ(big.exit_code, 1);
  EXPECT_EQ(big.err, "error: A batch of 201 is more than the 200 training images.\n");

  // A folder that cannot be made is noticed before anything is trained.
  const ProcessResult no_folder = run({"train", "fashion-mnist", "--data", data(), "--out",
                                       data() / "train-images-idx3-ubyte" / "run"});
  EXPECT_EQ(no_folder.exit_code, 1);
  EXPECT_THAT(no_folder.err, AllOf(StartsWith("error: The folder "), HasSubstr("cannot be made")));
  EXPECT_EQ(no_folder.out, "");

  test::put(folder_ / "model.safetensors", test::to_bytes("not a checkpoint"));
  const ProcessResult damaged = run({"eval", "--run", folder_.path()});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.err, StartsWith("error: "));
}

TEST_F(CommandTest, HelpAndVersion) {
  const ProcessResult help = run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("devices"), HasSubstr("train"), HasSubstr("eval"),
                              HasSubstr("inspect"), HasSubstr("Examples:")));
  EXPECT_EQ(help.err, "");
  for (const char* name : {"devices", "train", "eval", "inspect", "ops"}) {
    const ProcessResult r = run({name, "--help"});
    EXPECT_EQ(r.exit_code, 0) << name;
    EXPECT_THAT(r.out, HasSubstr("--help")) << name;
  }
  EXPECT_THAT(run({"--version"}).out, StartsWith("tensorgrad "));
}

TEST_F(CommandTest, ListsDevices) {
  const ProcessResult r = run({"devices", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  std::vector<std::string> names;
  const json listed = json::parse(r.out);
  for (const json& device : listed.at("devices")) {
    names.push_back(device.at("name"));
    EXPECT_TRUE(device.contains(device.at("usable") ? "description" : "reason")) << device;
  }
  EXPECT_THAT(names, testing::Contains("reference"));
  EXPECT_THAT(run({"devices"}).out, HasSubstr("reference\n"));
}

// The number of the first line of the workloads that has `text`.
std::string line_in_workloads(const std::string& text) {
  std::ifstream file(std::string(TENSORGRAD_SOURCE_DIR) + "/tools/workloads.cpp");
  int number = 1;
  for (std::string line; std::getline(file, line); ++number) {
    if (line.find(text) != std::string::npos) return std::to_string(number);
  }
  return "no such line";
}

TEST_F(CommandTest, InspectsRunsAndWorkloads) {
  ASSERT_EQ(run(train("run", {"--model", "mlp", "--epochs", "1"})).exit_code, 0);
  const ProcessResult r = run({"inspect", run_folder(), "--json", "--graph", "--profile"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json run_object = json::parse(r.out);
  EXPECT_EQ(run_object.at("work"), run_folder().string());
  ASSERT_FALSE(run_object.at("kernels").empty());
  std::int64_t flops = 0;
  for (const json& k : run_object.at("kernels")) {
    flops += k.at("flops").get<std::int64_t>();
    EXPECT_NE(k.at("source"), "") << k.at("name");
    EXPECT_FALSE(k.at("buffers").empty());
    EXPECT_GE(k.at("ms").get<double>(), 0);
  }
  // Forward and both products backward of three layers, but for the gradient by the images.
  const std::int64_t layers = 784 * 256 + 256 * 128 + 128 * 10;
  EXPECT_GT(flops, 2 * 20 * (3 * layers - 784 * 256));
  EXPECT_LT(flops, 2 * 20 * 3 * layers * 2);
  const json& bytes = run_object.at("bytes");
  EXPECT_GE(bytes.at("planned").get<std::int64_t>(), 3 * 4 * layers);
  EXPECT_GE(bytes.at("allocated").get<std::int64_t>(), 3 * 4 * layers);
  EXPECT_THAT(run_object.at("graph").get<std::string>(), HasSubstr("%"));

  const ProcessResult two = run({"inspect", "W1,W3", "--json"});
  ASSERT_EQ(two.exit_code, 0) << two.err;
  std::istringstream lines(two.out);
  std::vector<std::string> works;
  for (std::string line; std::getline(lines, line);) works.push_back(json::parse(line).at("work"));
  EXPECT_THAT(works, testing::ElementsAre("W1", "W3"));
  // Kernels name the lines of the model, not of the call that compiles it.
  EXPECT_THAT(run({"inspect", "W1", "--source"}).out,
              AllOf(HasSubstr("passes"), HasSubstr("kernels ("), HasSubstr("planned"),
                    HasSubstr("(workloads.cpp:" + line_in_workloads("return l3(relu("))));
}

}  // namespace
}  // namespace tensorgrad::tools
