#include "fuzz/parsers.h"

#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/disk_cache.h"
#include "runtime/web/host.h"
#include "runtime/web/target.h"
#include "schedule/schedule.h"
#include "tensorgrad/tensorgrad.h"
#ifdef TENSORGRAD_COMMAND
#include "../tools/run.h"
#endif

namespace tensorgrad::fuzz {
namespace {

namespace fs = std::filesystem;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// A folder of this process that goes with it.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tensorgrad-fuzz-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw FormatError("There is no folder for temporary files.");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};
const fs::path& folder() {
  static const Folder one;
  return one.path();
}
void write(const fs::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

// ---- IDX -----------------------------------------------------------------------------------------

void idx(std::span<const std::byte> bytes) { parse_idx(bytes, "input"); }

std::vector<Bytes> idx_seeds() {
  std::vector<Bytes> seeds;
  const auto file = [](int code, std::initializer_list<int> rest) {
    Bytes b{std::byte{0}, std::byte{0}, static_cast<std::byte>(code)};
    for (int x : rest) b.push_back(static_cast<std::byte>(x));
    return b;
  };
  seeds.push_back(file(0x08, {1, 0, 0, 0, 3, 1, 2, 3}));
  seeds.push_back(file(0x0b, {2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 1, 0, 2}));
  seeds.push_back(file(0x0d, {1, 0, 0, 0, 1, 63, 128, 0, 0}));
  seeds.push_back(file(0x0e, {1, 0, 0, 0, 0}));
  // The same, compressed as gzip does.
  z_stream stream{};
  constexpr int gzip = 16;
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, MAX_WBITS + gzip, 8, Z_DEFAULT_STRATEGY) ==
      Z_OK) {
    Bytes packed(256);
    stream.next_in = reinterpret_cast<Bytef*>(seeds[0].data());
    stream.avail_in = static_cast<uInt>(seeds[0].size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    deflate(&stream, Z_FINISH);
    packed.resize(stream.total_out);
    deflateEnd(&stream);
    seeds.push_back(std::move(packed));
  }
  return seeds;
}

// ---- safetensors and what is stored in it ----------------------------------------------------------

void safetensors(std::span<const std::byte> bytes) {
  const SafeTensors file = parse_safetensors(bytes, "input");
  for (const SafeTensor& tensor : file.tensors) {
    for (auto* convert : {+[](const SafeTensor& t) { to_float_vector(t); },
                          +[](const SafeTensor& t) { to_int32_vector(t); },
                          +[](const SafeTensor& t) { to_uint32_vector(t); }}) {
      try {
        convert(tensor);
      } catch (const FormatError&) {
        continue;  // another dtype
      }
    }
  }
}

Bytes safetensors_file(const std::string& header, std::size_t data) {
  Bytes b(sizeof(std::uint64_t));
  const std::uint64_t size = header.size();
  std::memcpy(b.data(), &size, sizeof size);
  const Bytes text = bytes_of(header);
  b.insert(b.end(), text.begin(), text.end());
  for (std::size_t i = 0; i < data; ++i) b.push_back(static_cast<std::byte>(i * 37));
  return b;
}

std::vector<Bytes> safetensors_seeds() {
  std::vector<Bytes> seeds;
  for (const auto& [dtype, size] : {std::pair("F32", 4),
                                    {"F64", 8},
                                    {"F16", 2},
                                    {"BF16", 2},
                                    {"I64", 8},
                                    {"U8", 1},
                                    {"BOOL", 1}}) {
    const int bytes = 6 * size;
    seeds.push_back(safetensors_file(
        R"({"__metadata__":{"a":"b\u00e9"},"t":{"dtype":")" + std::string(dtype) +
            R"(","shape":[2,3],"data_offsets":[0,)" + std::to_string(bytes) + "]}}",
        static_cast<std::size_t>(bytes)));
  }
  return seeds;
}

struct Net {
  nn::Linear layer{2, 1};
  TENSORGRAD_FIELDS(layer)
};
Training<Net> small_training() {
  return compile(Net{}, [](const Net& m, const Inputs& in) { return sum(m.layer(in["x"])); },
                 {.inputs = {{"x", {1, 2}}},
                  .optimizer = SGD{.lr = 0.1, .momentum = 0.9},
                  .device = "reference"});
}
void checkpoint(std::span<const std::byte> bytes) {
  static Training<Net> training = small_training();
  const fs::path path = folder() / "checkpoint.safetensors";
  write(path, bytes);
  training.load(path);
}
std::vector<Bytes> checkpoint_seeds() {
  const fs::path path = folder() / "seed.safetensors";
  small_training().save(path, {{"note", "none"}});
  return {read_file(path)};
}

#ifdef TENSORGRAD_COMMAND
void run_record(std::span<const std::byte> bytes) {
  const fs::path path = folder() / "run";
  fs::create_directories(path);
  const tools::RunFolder run{path};
  write(run.model(), bytes);
  tools::read_run(run);
}
std::vector<Bytes> run_record_seeds() {
  return {safetensors_file(
      R"({"__metadata__":{"dataset":"fashion-mnist","model":"mlp","epochs":"1","batch":"64","lr":"0.1",)"
      R"("seed":"1","train_images":"640","device":"cpu","step":"10","optimizer":"{\"name\":\"SGD\"}",)"
      R"("history":"{\"steps\":[],\"epochs\":[],\"epoch\":{},\"window\":{},\"seconds\":1.5}"}})",
      0)};
}
#endif

// ---- text ------------------------------------------------------------------------------------------

void optimizer(std::span<const std::byte> bytes) {
  const Optimizer read = parse_optimizer(text_of(bytes));
  parse_optimizer(to_string(read));
}
std::vector<Bytes> optimizer_seeds() {
  std::vector<Bytes> seeds;
  const Schedule lr = Schedule::warmup(3, Schedule::cosine(0.05, 0.001, 20));
  for (const Optimizer& o : {Optimizer(SGD{.lr = 0.1, .momentum = 0.9}), Optimizer(AdamW{.lr = lr}),
                             Optimizer(RMSprop{}), Optimizer(Adagrad{}), Optimizer(Lion{})}) {
    seeds.push_back(bytes_of(to_string(o)));
  }
  return seeds;
}

void passes(std::span<const std::byte> bytes) { const PassOptions options{text_of(bytes)}; }
std::vector<Bytes> passes_seeds() {
  return {bytes_of("-fuse_maps,-fuse_rows"), bytes_of("+simplify,,-reuse_memory"), {}};
}

void adapter(std::span<const std::byte> bytes) { web::parse_target(text_of(bytes)); }
std::vector<Bytes> adapter_seeds() {
  return {
      bytes_of("web"),
      bytes_of(R"(web:{"limits":{"maxStorageBuffersPerShaderStage":8,"maxBufferSize":268435456,)"
               R"("minStorageBufferOffsetAlignment":256},"features":["shader-f16","subgroups"],)"
               R"("adapter":{"subgroupMinSize":32,"subgroupMaxSize":64,"software":true}})")};
}

void request(std::span<const std::byte> bytes) {
  web::ModuleHost(web::Models{}).call(text_of(bytes));
}
std::vector<Bytes> request_seeds() {
  return {bytes_of(R"({"call":"models"})"),
          bytes_of(R"({"call":"open","model":"none","options":{"lr":0.1},"target":{}})"),
          bytes_of(R"({"call":"program","handle":1,"role":"step","name":"","shapes":[[1,2]]})"),
          bytes_of(R"({"call":"close","handle":1})")};
}

// ---- the cache of compiled kernels -----------------------------------------------------------------

constexpr std::string_view cache_key = "a key";
fs::path cache_file(DiskCache& cache, const fs::path& at) {
  cache.put(cache_key, bytes_of("a value"));
  for (const auto& entry : fs::directory_iterator(at)) return entry.path();
  return at / "missing";
}
void disk_cache(std::span<const std::byte> bytes) {
  static DiskCache cache(folder() / "cache");
  static const fs::path path = cache_file(cache, folder() / "cache");
  write(path, bytes);
  cache.get(cache_key);
}
std::vector<Bytes> disk_cache_seeds() {
  DiskCache cache(folder() / "seed-cache");
  return {read_file(cache_file(cache, folder() / "seed-cache"))};
}

constexpr Parser table[] = {
    {"idx", idx, idx_seeds},
    {"safetensors", safetensors, safetensors_seeds},
    {"checkpoint", checkpoint, checkpoint_seeds},
#ifdef TENSORGRAD_COMMAND
    {"run_record", run_record, run_record_seeds},
#endif
    {"optimizer", optimizer, optimizer_seeds},
    {"passes", passes, passes_seeds},
    {"adapter", adapter, adapter_seeds},
    {"request", request, request_seeds},
    {"disk_cache", disk_cache, disk_cache_seeds},
};

}  // namespace

std::span<const Parser> parsers() { return table; }

}  // namespace tensorgrad::fuzz
