// Results of compilers kept on disk from one process to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tensorgrad {

/// A folder of files, one for each key. A cache never fails: what cannot be read is not there, and
/// what cannot be written is not kept. Files that are damaged or belong to another user are ignored
/// and replaced. Thread-safe, and safe to share between processes.
class DiskCache {
 public:
  /// Bytes of all files beyond which the ones that were not used for longest are deleted.
  static constexpr std::uintmax_t default_limit = std::uintmax_t{256} << 20U;

  /// A cache in `folder`, made when the first value is written; without a folder it keeps nothing.
  explicit DiskCache(std::filesystem::path folder, std::uintmax_t limit = default_limit)
      : folder_(std::move(folder)), limit_(limit) {}
  /// The folder that the environment names: TENSORGRAD_CACHE_DIR, else XDG_CACHE_HOME/tensorgrad,
  /// else HOME/.cache/tensorgrad; "" where there is none or TENSORGRAD_CACHE is 0.
  static std::filesystem::path folder_from_environment();

  /// The value written last under `key`. The key is all that the value depends on: the text that
  /// was compiled, the target, and the compiler's version. It is compared in full.
  std::optional<std::vector<std::byte>> get(std::string_view key) const;
  /// Keeps `value` under `key`. Whether it was written.
  bool put(std::string_view key, std::span<const std::byte> value);

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path path_of(std::string_view key) const;
  void evict();

  std::filesystem::path folder_;
  std::uintmax_t limit_;
  std::mutex mutex_;
  std::optional<std::uintmax_t> bytes_;  ///< of all files, roughly: other processes write too
};

}  // namespace tensorgrad
