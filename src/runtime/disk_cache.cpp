#include "runtime/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <system_error>

namespace tensorgrad {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".tgcache";
constexpr std::string_view temporary_prefix = "writing-";
constexpr std::size_t largest_part = std::size_t{1} << 30U;

/// The start of a file; key and value follow.
struct Header {
  std::array<char, 8> magic{'T', 'G', 'C', 'A', 'C', 'H', 'E', '1'};
  std::uint64_t key_bytes = 0, value_bytes = 0;
  std::uint64_t checksum = 0;  ///< of key and value
};

std::uint64_t checksum(std::string_view key, std::span<const std::byte> value) {
  const auto add = [](uLong sum, const void* data, std::size_t bytes) {
    return crc32_z(sum, static_cast<const Bytef*>(data), bytes);
  };
  return add(add(crc32_z(0, nullptr, 0), key.data(), key.size()), value.data(), value.size());
}

/// FNV-1a. Two seeds make a name that keys seldom share; the file's own key decides.
std::uint64_t hash(std::string_view text, std::uint64_t seed) {
  std::uint64_t result = seed;
  for (const char c : text) {
    result = (result ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return result ^ (result >> 29U);
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  bool open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  bool read(void* to, std::size_t bytes) const {
    auto* at = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t count = ::read(descriptor_, at, bytes);
      if (count <= 0) return false;
      at += count;
      bytes -= static_cast<std::size_t>(count);
    }
    return true;
  }
  bool write(const void* from, std::size_t bytes) const {
    const auto* at = static_cast<const char*>(from);
    while (bytes > 0) {
      const ssize_t count = ::write(descriptor_, at, bytes);
      if (count <= 0) return false;
      at += count;
      bytes -= static_cast<std::size_t>(count);
    }
    return true;
  }
  /// Whether all that was written has arrived.
  bool close() {
    const int result = ::close(descriptor_);
    descriptor_ = -1;
    return result == 0;
  }

 private:
  int descriptor_;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_ours(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(suffix) || name.starts_with(temporary_prefix);
}

}  // namespace

fs::path DiskCache::folder_from_environment() {
  if (variable("TENSORGRAD_CACHE") == "0") return {};
  if (const std::string own = variable("TENSORGRAD_CACHE_DIR"); !own.empty()) return own;
  if (const std::string all = variable("XDG_CACHE_HOME"); !all.empty()) {
    return fs::path(all) / "tensorgrad";
  }
  if (const std::string home = variable("HOME"); !home.empty()) {
    return fs::path(home) / ".cache" / "tensorgrad";
  }
  return {};
}

fs::path DiskCache::path_of(std::string_view key) const {
  constexpr std::uint64_t first_seed = 0xcbf29ce484222325ULL;
  constexpr std::uint64_t second_seed = 0x9e3779b97f4a7c15ULL;
  return folder_ /
         fmt::format("{:016x}{:016x}{}", hash(key, first_seed), hash(key, second_seed), suffix);
}

std::optional<std::vector<std::byte>> DiskCache::get(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  const fs::path path = path_of(key);
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status{};
  if (!file.open() || ::fstat(file.descriptor(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::nullopt;
  }
  // What is read may be run as code, so it must be this user's own.
  if (status.st_uid != ::geteuid()) return std::nullopt;
  Header header;
  const Header expected;
  if (!file.read(&header, sizeof header) || header.magic != expected.magic ||
      header.key_bytes != key.size() || header.value_bytes > largest_part ||
      static_cast<std::uint64_t>(status.st_size) !=
          sizeof header + header.key_bytes + header.value_bytes) {
    return std::nullopt;
  }
  std::string stored(key.size(), '\0');
  std::vector<std::byte> value(static_cast<std::size_t>(header.value_bytes));
  if (!file.read(stored.data(), stored.size()) || !file.read(value.data(), value.size()) ||
      stored != key || checksum(key, value) != header.checksum) {
    return std::nullopt;
  }
  // Its age decides when it is deleted; an hour is close enough and spares most of the writes.
  constexpr time_t fresh = 3600;
  if (::time(nullptr) - status.st_mtime > fresh) ::futimens(file.descriptor(), nullptr);
  return value;
}

bool DiskCache::put(std::string_view key, std::span<const std::byte> value) {
  const std::uintmax_t size = sizeof(Header) + key.size() + value.size();
  if (folder_.empty() || size > limit_ || value.size() > largest_part) return false;
  std::error_code problem;
  if (!fs::is_directory(folder_, problem)) {
    fs::create_directories(folder_, problem);
    if (problem) return false;
    fs::permissions(folder_, fs::perms::owner_all, problem);
  }
  std::string temporary = (folder_ / fmt::format("{}XXXXXX", temporary_prefix)).string();
  File file(::mkstemp(temporary.data()));
  if (!file.open()) return false;
  Header header;
  header.key_bytes = key.size();
  header.value_bytes = value.size();
  header.checksum = checksum(key, value);
  const bool written = file.write(&header, sizeof header) && file.write(key.data(), key.size()) &&
                       file.write(value.data(), value.size());
  if (!file.close() || !written || ::rename(temporary.c_str(), path_of(key).c_str()) != 0) {
    ::unlink(temporary.c_str());
    return false;
  }
  const std::lock_guard lock(mutex_);
  if (bytes_) *bytes_ += size;
  if (!bytes_ || *bytes_ > limit_) evict();
  return true;
}

void DiskCache::evict() {
  struct Entry {
    fs::path path;
    std::uintmax_t bytes;
    fs::file_time_type used;
  };
  std::vector<Entry> entries;
  std::uintmax_t total = 0;
  std::error_code problem;
  const auto now = fs::file_time_type::clock::now();
  fs::directory_iterator item(folder_, problem);
  for (; !problem && item != fs::directory_iterator(); item.increment(problem)) {
    // Another process may delete files meanwhile.
    std::error_code gone;
    if (!is_ours(item->path()) || !item->is_regular_file(gone)) continue;
    const auto bytes = item->file_size(gone);
    const auto used = item->last_write_time(gone);
    if (gone) continue;
    if (item->path().filename().string().starts_with(temporary_prefix)) {
      // Left by a process that ended while it wrote.
      if (now - used > std::chrono::hours(1)) fs::remove(item->path(), gone);
      continue;
    }
    entries.push_back({item->path(), bytes, used});
    total += bytes;
  }
  if (total > limit_) {
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.used < b.used; });
    // More than needed, so that the next value does not search again.
    const std::uintmax_t wanted = limit_ - limit_ / 4;
    for (const Entry& entry : entries) {
      if (total <= wanted) break;
      std::error_code gone;
      fs::remove(entry.path, gone);
      total -= entry.bytes;
    }
  }
  bytes_ = total;
}

}  // namespace tensorgrad
