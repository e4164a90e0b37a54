// Threads that share the chunks of one job after another.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tensorgrad::cpu {

/// A pool of threads. The thread that brings a job works on it too and claims chunks like the
/// others, so a worker that the system does not let run costs nothing but its help. Who waits spins
/// for some microseconds and then sleeps.
class ThreadPool {
 public:
  /// What a job does: one chunk, on the thread with number `slot` in [0, threads).
  using Body = std::function<void(std::int64_t chunk, int slot)>;

  /// A pool of `threads` threads, at least 1, the one that brings a job included. The others start
  /// with the first job that has work for them.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  /// Runs body(0, slot) to body(chunks - 1, slot), each once, in any order and on any thread, and
  /// returns when all are done. No two threads of one job have the same slot. While the pool works
  /// for another thread, and for a job brought by a job, all chunks run on the calling thread.
  /// Throws what the first failing chunk throws.
  void run(std::int64_t chunks, const Body& body);

 private:
  /// Claims and runs chunks of the current job until none is left.
  void take_part(int slot);
  bool claim(std::int64_t& chunk);
  void work(int slot);
  void start();
  void wait_until_done();

  const int threads_;
  std::atomic<bool> busy_{false};

  // The job. `unclaimed_` is written last and claimed from by exchange, so whoever holds a chunk
  // sees the job that it belongs to: the job cannot end before that chunk is done.
  const Body* body_ = nullptr;
  std::int64_t chunks_ = 0;
  std::atomic<std::int64_t> unclaimed_{0};
  std::atomic<std::int64_t> unfinished_{0};
  std::exception_ptr problem_;  ///< the first, under mutex_

  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::atomic<int> asleep_{0};  ///< workers that wait for `work_`
  std::atomic<bool> caller_asleep_{false};
  std::atomic<bool> ending_{false};
  std::vector<std::jthread> workers_;  ///< last: joined before what they use is gone
};

}  // namespace tensorgrad::cpu
