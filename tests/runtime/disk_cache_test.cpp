#include "runtime/disk_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "io/temp_folder.h"

namespace tensorgrad {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;
using test::to_bytes;
using testing::Optional;

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> result;
  for (const auto& item : fs::directory_iterator(folder)) result.push_back(item.path());
  return result;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void replace(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// An environment variable for a scope; null unsets it.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { set(old_ ? old_->c_str() : nullptr); }

 private:
  void set(const char* value) const {
    if (value == nullptr) {
      ::unsetenv(name_);
    } else {
      ::setenv(name_, value, 1);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

TEST(DiskCache, GivesBackWhatWasPutInAnotherProcessToo) {
  const TempFolder folder;
  DiskCache cache(folder / "made" / fs::path("when needed"));
  EXPECT_EQ(cache.get("a"), std::nullopt);
  EXPECT_TRUE(cache.put("a", to_bytes("first")));
  EXPECT_TRUE(cache.put("b", to_bytes("")));
  EXPECT_TRUE(cache.put("a", to_bytes("second")));
  const DiskCache other(cache.folder());
  EXPECT_THAT(other.get("a"), Optional(to_bytes("second")));
  EXPECT_THAT(other.get("b"), Optional(to_bytes("")));
  EXPECT_EQ(other.get("c"), std::nullopt);
  EXPECT_EQ(files_of(cache.folder()).size(), 2U) << "no temporary file is left";
}

TEST(DiskCache, IgnoresAndReplacesDamagedFiles) {
  const TempFolder folder;
  DiskCache cache(folder.path());
  ASSERT_TRUE(cache.put("key", to_bytes("some value")));
  const fs::path file = files_of(folder.path()).at(0);
  const std::string good = contents(file);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    replace(file, bad);
    EXPECT_EQ(cache.get("key"), std::nullopt) << "byte " << at;
    replace(file, good.substr(0, at));
    EXPECT_EQ(cache.get("key"), std::nullopt) << "cut at " << at;
  }
  replace(file, good + "x");
  EXPECT_EQ(cache.get("key"), std::nullopt);
  EXPECT_TRUE(cache.put("key", to_bytes("some value")));
  EXPECT_THAT(cache.get("key"), Optional(to_bytes("some value")));
}

TEST(DiskCache, AFileOfAnotherKeyIsNotTakenForThisOne) {
  const TempFolder folder;
  DiskCache cache(folder.path());
  ASSERT_TRUE(cache.put("one", to_bytes("1")));
  const fs::path one = files_of(folder.path()).at(0);
  const std::string text = contents(one);
  ASSERT_TRUE(cache.put("two", to_bytes("2")));
  for (const fs::path& file : files_of(folder.path())) replace(file, text);
  EXPECT_THAT(cache.get("one"), Optional(to_bytes("1")));
  EXPECT_EQ(cache.get("two"), std::nullopt);
}

TEST(DiskCache, FollowsNoLinks) {
  const TempFolder folder;
  DiskCache cache(folder / "cache");
  ASSERT_TRUE(cache.put("key", to_bytes("value")));
  const fs::path file = files_of(cache.folder()).at(0);
  fs::rename(file, folder / "elsewhere");
  fs::create_symlink(folder / "elsewhere", file);
  EXPECT_EQ(cache.get("key"), std::nullopt);
}

TEST(DiskCache, KeepsNothingWhereItCannotWrite) {
  const TempFolder folder;
  replace(folder / "file", "in the way");
  DiskCache blocked(folder / "file");
  EXPECT_FALSE(blocked.put("key", to_bytes("value")));
  EXPECT_EQ(blocked.get("key"), std::nullopt);
  EXPECT_EQ(contents(folder / "file"), "in the way");
  DiskCache off{fs::path()};
  EXPECT_FALSE(off.put("key", to_bytes("value")));
  EXPECT_EQ(off.get("key"), std::nullopt);
}

TEST(DiskCache, DeletesWhatWasNotUsedForLongest) {
  const TempFolder folder;
  replace(folder / "notes.txt", "not of the cache");
  DiskCache cache(folder.path(), 10'000);
  const std::vector<std::byte> value(2'000, std::byte{7});
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(cache.put(std::to_string(i), value));
    // Files made in one tick of the clock have no order.
    for (const fs::path& file : files_of(folder.path())) {
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(2));
    }
  }
  EXPECT_TRUE(cache.get("0")) << "it is young again now";
  ASSERT_TRUE(cache.put("4", value));
  EXPECT_TRUE(cache.get("0"));
  EXPECT_EQ(cache.get("1"), std::nullopt);
  EXPECT_TRUE(cache.get("4"));
  EXPECT_FALSE(cache.put("large", std::vector<std::byte>(20'000)));
  EXPECT_TRUE(cache.get("4"));
  EXPECT_TRUE(fs::exists(folder / "notes.txt"));
}

TEST(DiskCache, IsSharedByThreads) {
  const TempFolder folder;
  DiskCache cache(folder.path(), 20'000);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 40; ++i) {
        const std::string key = std::to_string(i % 7);
        const std::vector<std::byte> value(1'000, static_cast<std::byte>(i % 7));
        EXPECT_TRUE(cache.put(key, value));
        const auto found = cache.get(key);
        if (found) {
          EXPECT_EQ(*found, value);
        }
      }
    });
  }
}

TEST(DiskCache, TheEnvironmentNamesTheFolder) {
  const Variable on("TENSORGRAD_CACHE", nullptr);
  const Variable home("HOME", "/people/someone");
  {
    const Variable own("TENSORGRAD_CACHE_DIR", nullptr);
    const Variable all("XDG_CACHE_HOME", nullptr);
    EXPECT_EQ(DiskCache::folder_from_environment(), "/people/someone/.cache/tensorgrad");
    const Variable other("XDG_CACHE_HOME", "/caches");
    EXPECT_EQ(DiskCache::folder_from_environment(), "/caches/tensorgrad");
    const Variable own_folder("TENSORGRAD_CACHE_DIR", "/mine");
    EXPECT_EQ(DiskCache::folder_from_environment(), "/mine");
    const Variable off("TENSORGRAD_CACHE", "0");
    EXPECT_EQ(DiskCache::folder_from_environment(), "");
  }
}

}  // namespace
}  // namespace tensorgrad
