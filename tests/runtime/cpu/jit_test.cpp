#include "runtime/cpu/jit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/temp_folder.h"
#include "runtime/disk_cache.h"
#include "tensorgrad/error.h"

namespace tensorgrad::cpu {
namespace {

/// A kernel that stores `value` at its first argument.
std::string storing(int value) {
  return "define void @kernel(ptr %args, i64 %begin, i64 %end) {\n"
         "  %p = load ptr, ptr %args\n"
         "  store i32 " +
         std::to_string(value) +
         ", ptr %p\n"
         "  ret void\n}\n";
}

int result_of(const Code& code) {
  int out = 0;
  void* args[] = {&out};
  code.entry()(args, 0, 1);
  return out;
}

TEST(Jit, CompilesManyAtOnceAndEqualTextOnce) {
  Jit jit;
  std::vector<Source> sources;
  for (int i = 0; i < 12; ++i) sources.push_back({"k" + std::to_string(i), storing(i % 5)});
  const auto code = jit.compile(sources, 2);
  ASSERT_EQ(code.size(), 12U);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(result_of(*code[static_cast<std::size_t>(i)]), i % 5);
  EXPECT_EQ(code[1]->entry(), code[6]->entry());
  EXPECT_NE(code[1]->entry(), code[2]->entry());
  const Source again{"another name", storing(3)};
  EXPECT_EQ(jit.compile({&again, 1}, 1).front()->entry(), code[3]->entry());
}

TEST(Jit, KeepsObjectsOnDisk) {
  const test::TempFolder folder;
  const std::vector<Source> sources{{"a", storing(1)}, {"b", storing(2)}, {"c", storing(1)}};
  const auto run = [&](const std::vector<Source>& wanted) {
    Jit jit(folder.path());
    const auto code = jit.compile(wanted, 2);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(storing(result_of(*code[i])), wanted[i].text);
    }
    return jit.counts();
  };
  JitCounts counts = run(sources);
  EXPECT_EQ(counts.compiled, 2U);
  EXPECT_EQ(counts.from_disk, 0U);
  EXPECT_EQ(counts.from_memory, 1U);
  counts = run({sources[0], sources[1], {"d", storing(3)}});
  EXPECT_EQ(counts.compiled, 1U);
  EXPECT_EQ(counts.from_disk, 2U);
  // Files that are damaged, and one that is sound but holds no object.
  bool first = true;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    std::string text(std::filesystem::file_size(file), '\0');
    std::ifstream(file.path(), std::ios::binary)
        .read(text.data(), static_cast<std::streamsize>(text.size()));
    if (first) {
      const auto start = text.find("cpu LLVM");
      const auto end = text.find("ret void\n}\n") + 11;
      ASSERT_LT(start, end);
      ASSERT_TRUE(
          DiskCache(folder.path()).put(text.substr(start, end - start), test::to_bytes("?")));
      first = false;
    } else {
      std::filesystem::resize_file(file, text.size() / 2);
    }
  }
  counts = run(sources);
  EXPECT_EQ(counts.compiled, 2U);
  counts = run(sources);
  EXPECT_EQ(counts.compiled, 0U);
  EXPECT_EQ(counts.from_disk, 2U);
}

TEST(Jit, CodeOutlivesTheCompiler) {
  std::shared_ptr<const Code> code;
  {
    Jit jit;
    const Source source{"k", storing(42)};
    code = jit.compile({&source, 1}, 1).front();
  }
  EXPECT_EQ(result_of(*code), 42);
}

TEST(Jit, NamesTheKernelThatLlvmRefuses) {
  Jit jit;
  const Source sources[] = {{"good", storing(1)}, {"bad one", "define void @kernel( {"}};
  try {
    jit.compile(sources, 2);
    FAIL() << "broken text was accepted";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("\"bad one\""), std::string::npos) << error.what();
  }
  EXPECT_EQ(result_of(*jit.compile({sources, 1}, 1).front()), 1);
}

TEST(Jit, RefusesFunctionsThatDoNotExist) {
  Jit jit;
  const Source source{"caller",
                      "declare void @no_such_function_anywhere()\n"
                      "define void @kernel(ptr %args, i64 %begin, i64 %end) {\n"
                      "  call void @no_such_function_anywhere()\n  ret void\n}\n"};
  EXPECT_THROW(jit.compile({&source, 1}, 1), DeviceError);
}

TEST(Jit, DescribesTheProcessor) {
  const Jit jit;
  EXPECT_FALSE(jit.processor().name.empty());
  EXPECT_GE(jit.processor().vector_bits, 128);
}

}  // namespace
}  // namespace tensorgrad::cpu
