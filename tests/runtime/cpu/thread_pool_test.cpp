#include "runtime/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace tensorgrad::cpu {
namespace {

TEST(ThreadPool, RunsEachChunkOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int round = 0; round < 300; ++round) {
      const auto chunks = static_cast<std::int64_t>(round % 17);
      std::vector<int> runs(static_cast<std::size_t>(chunks), 0);
      pool.run(chunks, [&](std::int64_t chunk, int) { ++runs[static_cast<std::size_t>(chunk)]; });
      for (const int count : runs) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, ThreadsOfAJobHaveSlotsOfTheirOwn) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  for (int round = 0; round < 50; ++round) {
    pool.run(64, [&](std::int64_t, int slot) {
      EXPECT_EQ(inside.at(static_cast<std::size_t>(slot)).fetch_add(1), 0);
      std::this_thread::yield();
      inside[static_cast<std::size_t>(slot)].fetch_sub(1);
    });
  }
}

TEST(ThreadPool, WakesThreadsThatSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    // Each chunk waits for the other two: the job ends only if three threads take part.
    std::atomic<int> present{0};
    pool.run(3, [&](std::int64_t, int) {
      ++present;
      while (present < 3) std::this_thread::yield();
    });
    EXPECT_EQ(present, 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(ThreadPool, HandsOnWhatAChunkThrows) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    try {
      pool.run(32, [&](std::int64_t chunk, int) {
        if (chunk % 8 == 5) throw std::runtime_error("chunk");
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()), "chunk");
    }
    std::atomic<int> count{0};
    pool.run(32, [&](std::int64_t, int) { ++count; });
    EXPECT_EQ(count, 32);
  }
}

TEST(ThreadPool, ServesSeveralThreadsAndJobsWithinJobs) {
  ThreadPool pool(3);
  std::atomic<int> count{0};
  {
    std::vector<std::jthread> users;
    for (int user = 0; user < 4; ++user) {
      users.emplace_back([&] {
        for (int round = 0; round < 50; ++round) {
          pool.run(8, [&](std::int64_t, int) {
            pool.run(2, [&](std::int64_t, int slot) {
              EXPECT_EQ(slot, 0);
              ++count;
            });
          });
        }
      });
    }
  }
  EXPECT_EQ(count, 4 * 50 * 8 * 2);
}

}  // namespace
}  // namespace tensorgrad::cpu
