// Whole-file reads, and writes that replace a file at once or not at all.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <system_error>

#include "tensorgrad/io.h"

namespace tensorgrad {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail(std::string_view verb, const std::filesystem::path& path, int error) {
  throw FormatError(
      fmt::format("The file {} cannot be {}: {}.", path.string(), verb, reason(error)));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Reports what close reports: a network file system may refuse the data only here.
  int close() {
    const int result = ::close(fd_);
    fd_ = -1;
    return result;
  }

 private:
  int fd_;
};

// Removes the file unless it has been renamed to its final name.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path path) : path_(std::move(path)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!kept_) ::unlink(path_.c_str());
  }
  const std::filesystem::path& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  std::filesystem::path path_;
  bool kept_ = false;
};

void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("written", path, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

}  // namespace

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  // Non-blocking so that a named pipe is refused below instead of waited for.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) fail("read", path, errno);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) fail("read", path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw FormatError(
        fmt::format("The file {} cannot be read: it is not a regular file.", path.string()));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0) {
      if (errno == EINTR) continue;
      fail("read", path, errno);
    }
    if (got == 0) {
      throw FormatError(
          fmt::format("The file {} shrinks while it is read: {} of {} bytes are left.",
                      path.string(), filled, bytes.size()));
    }
    filled += static_cast<std::size_t>(got);
  }
  return bytes;
}

void write_file_atomically(const std::filesystem::path& path,
                           std::span<const std::span<const std::byte>> parts) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const FileDescriptor folder_fd(::open(folder.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
  if (!folder_fd.valid()) fail("written", path, errno);

  std::random_device entropy;
  const std::filesystem::path temporary_path =
      fmt::format("{}.{:08x}{:08x}.tmp", path.string(), entropy(), entropy());
  FileDescriptor file(
      ::open(temporary_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.valid()) fail("written", path, errno);
  TemporaryFile temporary(temporary_path);

  for (const std::span<const std::byte> part : parts) write_all(file.get(), part, path);
  if (::fsync(file.get()) != 0) fail("written", path, errno);
  if (file.close() != 0) fail("written", path, errno);
  if (::rename(temporary.path().c_str(), path.c_str()) != 0) fail("written", path, errno);
  temporary.keep();
  // Some file systems cannot flush a folder and say so by EINVAL; they order renames themselves.
  if (::fsync(folder_fd.get()) != 0 && errno != EINVAL) {
    throw FormatError(fmt::format("The file {} is written, but its folder cannot be flushed: {}.",
                                  path.string(), reason(errno)));
  }
}

}  // namespace tensorgrad
