// The tiles that attention takes without measuring.
#include "codegen/wgsl/attention.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tensorgrad::wgsl {
namespace {

using kernel::Attention;

// 96 heads of 1024 tokens on a GPU of 132 units, where 64 x 32 scores take 0.91 ms forward and
// 64 x 16 take 1.72 ms.
Attention long_rows(Attention::Mode mode) {
  Attention a;
  a.mode = mode;
  a.batch = {96};
  a.queries = a.keys = 1024;
  a.depth = a.value_depth = 64;
  a.causal = true;
  return a;
}
Target gpu(std::int64_t workgroup_bytes) {
  Target t;
  t.invocations = t.workgroup_size_x = 1024;
  t.workgroup_bytes = workgroup_bytes;
  t.units = 132;
  return t;
}

TEST(WgslAttention, LongRowsTakeWideTiles) {
  for (const auto mode : {Attention::Mode::forward, Attention::Mode::backward}) {
    const auto tiles = attention_tiles(long_rows(mode), gpu(49152));
    ASSERT_FALSE(tiles.empty());
    EXPECT_EQ(tiles.front().streamed(), 32) << to_string(tiles.front());
  }
  const auto forward = attention_tiles(long_rows(Attention::Mode::forward), gpu(49152));
  EXPECT_EQ(to_string(forward.front()), "64x32 scores, 4x4 a thread");
}

TEST(WgslAttention, TilesFitTheDevice) {
  for (const std::int64_t bytes : {16384, 32768}) {
    const auto tiles = attention_tiles(long_rows(Attention::Mode::forward), gpu(bytes));
    EXPECT_FALSE(tiles.empty());
    EXPECT_TRUE(std::none_of(
        tiles.begin(), tiles.end(),
        [](const AttentionTile& tile) { return tile.own() == 64 && tile.streamed() == 32; }))
        << "46336 bytes in a workgroup of " << bytes;
  }
  Target software = gpu(49152);
  software.cpu = true;
  EXPECT_TRUE(attention_tiles(long_rows(Attention::Mode::forward), software).empty());
}

}  // namespace
}  // namespace tensorgrad::wgsl
