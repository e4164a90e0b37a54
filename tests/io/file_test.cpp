#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "io/temp_folder.h"
#include "tensorgrad/io.h"

namespace tensorgrad {
namespace {

using test::message_of;
using test::put;
using test::TempFolder;
using test::to_bytes;
using testing::AllOf;
using testing::HasSubstr;

void write(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const std::array<std::span<const std::byte>, 1> parts{bytes};
  write_file_atomically(path, parts);
}

// Lets no file of the process grow beyond `bytes`, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_limit_);
    const rlimit limit{bytes, old_limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_limit_{};
  void (*old_handler_)(int) = nullptr;
};

TEST(File, WritesAndReplaces) {
  const TempFolder folder;
  const auto one = to_bytes("one");
  const auto two = to_bytes("+two");
  const std::array<std::span<const std::byte>, 3> parts{one, {}, two};
  write_file_atomically(folder / "f", parts);
  EXPECT_EQ(read_file(folder / "f"), to_bytes("one+two"));
  write(folder / "f", {});
  EXPECT_TRUE(read_file(folder / "f").empty());
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(File, AFullDiskLeavesTheOldFile) {
  const TempFolder folder;
  put(folder / "f", to_bytes("old"));
  {
    const FileSizeLimit limit(1000);
    EXPECT_THAT(
        message_of<FormatError>([&] { write(folder / "f", std::vector<std::byte>(100'000)); }),
        AllOf(HasSubstr((folder / "f").string()), HasSubstr("cannot be written")));
  }
  EXPECT_EQ(read_file(folder / "f"), to_bytes("old"));
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(File, AReadOnlyFolderLeavesTheOldFile) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write to any folder";
  const TempFolder folder;
  put(folder / "f", to_bytes("old"));
  ASSERT_EQ(chmod(folder.path().c_str(), 0555), 0);
  EXPECT_THROW(write(folder / "f", to_bytes("new")), FormatError);
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  EXPECT_EQ(read_file(folder / "f"), to_bytes("old"));
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(File, AFailedRenameRemovesTheTemporaryFile) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "f");
  EXPECT_THROW(write(folder / "f", to_bytes("new")), FormatError);
  EXPECT_EQ(folder.file_count(), 1U);
  EXPECT_TRUE(std::filesystem::is_directory(folder / "f"));
  EXPECT_THROW(write(folder / "missing" / "f", to_bytes("new")), FormatError);
}

TEST(File, ReadsOnlyRegularFiles) {
  const TempFolder folder;
  EXPECT_THAT(message_of<FormatError>([&] { read_file(folder / "none"); }),
              AllOf(HasSubstr("none"), HasSubstr("No such file")));
  EXPECT_THROW(read_file(folder.path()), FormatError);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of<FormatError>([&] { read_file(folder / "pipe"); }),
              HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace tensorgrad
