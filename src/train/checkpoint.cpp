// Saving and loading a training.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tensorgrad/io.h"
#include "train/core.h"
#include "train/update.h"

namespace tensorgrad::detail {
namespace {

constexpr const char* prefix = "optimizer.";

std::uint64_t number(const SafeTensors& file, const std::string& key,
                     const std::filesystem::path& path) {
  const auto it = file.metadata.find(key);
  std::uint64_t value = 0;
  if (it != file.metadata.end()) {
    const std::string& text = it->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
  }
  throw FormatError(fmt::format("{}: the metadata has no number `{}`.", path.string(), key));
}

}  // namespace

std::vector<std::string> TrainingCore::arena_names() const {
  std::vector<std::string> names{""};
  for (const std::string& n : slot_names(options_.optimizer)) {
    names.push_back(prefix + n + ".");
  }
  return names;
}

void TrainingCore::save(const std::filesystem::path& path,
                        const std::map<std::string, std::string>& metadata) const {
  SafeTensors file;
  file.metadata = metadata;
  file.metadata["format"] = "tensorgrad";
  file.metadata["step"] = fmt::format("{}", steps_);
  file.metadata["seed"] = fmt::format("{}", options_.seed);
  file.metadata["optimizer"] = to_string(options_.optimizer);
  const std::vector<std::string> names = arena_names();
  std::vector<std::vector<float>> arenas;
  for (std::size_t a = 0; a < names.size(); ++a) {
    arenas.push_back(read_arena(a));
    for (const Slot& s : slots_) {
      const auto values =
          std::span<const float>(arenas.back())
              .subspan(static_cast<std::size_t>(s.offset), static_cast<std::size_t>(s.size));
      file.tensors.push_back({names[a] + s.name, "F32", s.param.shape, std::as_bytes(values), {}});
    }
  }
  const std::vector<ParamValue> kept = buffers();
  for (const ParamValue& b : kept) {
    file.tensors.push_back(
        {b.name, "F32", b.shape, std::as_bytes(std::span<const float>(b.values)), {}});
  }
  write_safetensors(path, file);
}

void TrainingCore::load(const std::filesystem::path& path) {
  const SafeTensors file = read_safetensors(path);
  const std::vector<std::string> names = arena_names();
  const bool resumes = std::any_of(file.tensors.begin(), file.tensors.end(),
                                   [](const auto& t) { return t.name.starts_with(prefix); });
  for (const SafeTensor& t : file.tensors) {
    const bool buffer = std::any_of(buffer_slots_.begin(), buffer_slots_.end(),
                                    [&](const BufferSlot& s) { return t.name == s.name; });
    const bool known = buffer || std::any_of(names.begin(), names.end(), [&](const std::string& n) {
                         return std::any_of(slots_.begin(), slots_.end(),
                                            [&](const Slot& s) { return t.name == n + s.name; });
                       });
    if (!known) {
      throw FormatError(
          fmt::format("{}: holds `{}`, which this training does not have.", path.string(), t.name));
    }
  }
  // Everything is read and checked before anything is replaced.
  const auto read = [&](const std::string& name, const Shape& shape, std::int64_t offset,
                        std::vector<float>& arena) {
    const SafeTensor& t = file.at(name);
    if (t.shape != shape) {
      throw FormatError(fmt::format("{}: `{}` has shape {}, the model's {}.", path.string(), t.name,
                                    to_string(t.shape), to_string(shape)));
    }
    const std::vector<float> values = to_float_vector(t);
    std::copy(values.begin(), values.end(), arena.begin() + offset);
  };
  std::vector<std::vector<float>> arenas;
  for (std::size_t a = 0; a < (resumes ? names.size() : 1); ++a) {
    std::vector<float> arena(static_cast<std::size_t>(arena_size_), 0.0F);
    for (const Slot& s : slots_) read(names[a] + s.name, s.param.shape, s.offset, arena);
    arenas.push_back(std::move(arena));
  }
  std::vector<float> kept(static_cast<std::size_t>(buffer_size_), 0.0F);
  for (const BufferSlot& s : buffer_slots_) read(s.name, s.buffer.shape, s.offset, kept);
  std::int64_t step = 0;
  std::uint64_t seed = options_.seed;
  if (resumes) {
    step = static_cast<std::int64_t>(number(file, "step", path));
    seed = number(file, "seed", path);
  }
  arenas.resize(names.size(), std::vector<float>(static_cast<std::size_t>(arena_size_), 0.0F));
  for (std::size_t a = 0; a < arenas.size(); ++a) write_arena(a, arenas[a]);
  if (has_buffers()) write_arena(buffer_index(), kept);
  steps_ = step;
  options_.seed = seed;
}

}  // namespace tensorgrad::detail

namespace tensorgrad {

void AnyTraining::save(const std::filesystem::path& path,
                       const std::map<std::string, std::string>& metadata) const {
  core_->save(path, metadata);
}
void AnyTraining::load(const std::filesystem::path& path) { core_->load(path); }

}  // namespace tensorgrad
