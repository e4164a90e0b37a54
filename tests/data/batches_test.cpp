#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "tensorgrad/data.h"

namespace tensorgrad {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> order_of(const EpochBatches& epoch) {
  std::vector<std::int64_t> order;
  for (const std::span<const std::int64_t> batch : epoch) {
    order.insert(order.end(), batch.begin(), batch.end());
  }
  return order;
}

TEST(Batches, AnEpochIsAPermutation) {
  for (const std::int64_t samples : {0, 1, 2, 7, 64, 1000}) {
    const Batches batches(samples, 8, {.seed = 5});
    auto order = order_of(batches.epoch(2));
    std::ranges::sort(order);
    ASSERT_EQ(static_cast<std::int64_t>(order.size()), samples);
    for (std::int64_t i = 0; i < samples; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
}

TEST(Batches, TheOrderIsTheSameEverywhere) {
  EXPECT_THAT(order_of(Batches(10, 3).epoch(0)), ElementsAre(9, 1, 6, 4, 0, 7, 2, 5, 3, 8));
  EXPECT_THAT(order_of(Batches(10, 4, {.seed = 42}).epoch(3)),
              ElementsAre(4, 3, 9, 7, 6, 5, 2, 0, 1, 8));
}

TEST(Batches, SeedsAndEpochsDiffer) {
  const auto order = order_of(Batches(100, 10, {.seed = 1}).epoch(0));
  EXPECT_NE(order, order_of(Batches(100, 10, {.seed = 2}).epoch(0)));
  EXPECT_NE(order, order_of(Batches(100, 10, {.seed = 1}).epoch(1)));
  EXPECT_NE(order_of(Batches(100, 10, {.seed = 1}).epoch(1)),
            order_of(Batches(100, 10, {.seed = 0}).epoch(2)));
}

TEST(Batches, EveryOrderOfThreeIsAboutAsLikely) {
  std::map<std::vector<std::int64_t>, int> counts;
  const Batches batches(3, 3, {.seed = 9});
  for (int epoch = 0; epoch < 6000; ++epoch) ++counts[order_of(batches.epoch(epoch))];
  ASSERT_EQ(counts.size(), 6U);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(Batches, ResumesFromEpochAndBatch) {
  const Batches batches(50, 8, {.seed = 3});
  const auto order = order_of(batches.epoch(4));
  const EpochBatches resumed = Batches(50, 8, {.seed = 3}).epoch(4);
  const auto batch = resumed[5];
  EXPECT_TRUE(std::equal(batch.begin(), batch.end(), order.begin() + 40));
}

TEST(Batches, TheLastBatchIsShortOrDropped) {
  const EpochBatches kept = Batches(10, 4, {.shuffle = false}).epoch(0);
  EXPECT_EQ(kept.size(), 3);
  EXPECT_THAT(kept[0], ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(kept[2], ElementsAre(8, 9));
  const Batches dropping(10, 4, {.drop_last = true});
  EXPECT_EQ(dropping.batches_per_epoch(), 2);
  EXPECT_EQ(order_of(dropping.epoch(0)).size(), 8U);
  EXPECT_EQ(Batches(3, 4, {.drop_last = true}).batches_per_epoch(), 0);
  EXPECT_EQ(Batches(8, 4).batches_per_epoch(), 2);
}

TEST(Batches, RefusesBadArguments) {
  EXPECT_THROW(Batches(-1, 4), ValueError);
  EXPECT_THROW(Batches(10, 0), ValueError);
  const Batches batches(10, 4);
  EXPECT_THROW(batches.epoch(-1), ValueError);
  const EpochBatches epoch = batches.epoch(0);
  EXPECT_THROW(epoch[3], ValueError);
  EXPECT_THROW(epoch[-1], ValueError);
}

TEST(Gather, ScalesImagesAndCopiesLabels) {
  const LabelledImages data{.count = 3,
                            .height = 1,
                            .width = 2,
                            .images = {0, 255, 51, 102, 153, 204},
                            .labels = {7, 8, 9}};
  const std::vector<std::int64_t> indices{2, 0};
  EXPECT_THAT(gather_images(data, indices), ElementsAre(0.6F, 0.8F, 0.0F, 1.0F));
  EXPECT_THAT(gather_images(data, indices, {.mean = 0.5, .standard_deviation = 0.25}),
              ElementsAre(testing::FloatEq(0.4F), testing::FloatEq(1.2F), -2.0F, 2.0F));
  EXPECT_THAT(gather_labels(data, indices), ElementsAre(9, 7));
  EXPECT_TRUE(gather_images(data, {}).empty());
}

TEST(Gather, RefusesBadArguments) {
  const LabelledImages data{.count = 1, .height = 1, .width = 1, .images = {0}, .labels = {0}};
  const std::vector<std::int64_t> beyond{1};
  const std::vector<std::int64_t> negative{-1};
  EXPECT_THROW(gather_images(data, beyond), ValueError);
  EXPECT_THROW(gather_labels(data, negative), ValueError);
  const std::vector<std::int64_t> good{0};
  EXPECT_THROW(gather_images(data, good, {.standard_deviation = 0}), ValueError);
  EXPECT_THROW(gather_images(data, good, {.mean = std::numeric_limits<double>::quiet_NaN()}),
               ValueError);
}

}  // namespace
}  // namespace tensorgrad
