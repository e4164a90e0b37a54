#include "runtime/cpu/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tensorgrad::cpu {
namespace {

/// How long a thread looks for work, or for the end of a job, before it sleeps: about what falling
/// asleep and being woken costs.
constexpr std::chrono::microseconds patience{30};

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// Whether `condition` holds before patience ends.
template <class Condition>
bool spin(const Condition& condition) {
  constexpr int looks_between_times = 64;
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    for (int i = 0; i < looks_between_times; ++i) {
      if (condition()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return condition();
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(std::max(threads, 1)) {}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
}

void ThreadPool::start() {
  if (!workers_.empty()) return;
  workers_.reserve(static_cast<std::size_t>(threads_ - 1));
  for (int slot = 1; slot < threads_; ++slot) {
    workers_.emplace_back([this, slot] { work(slot); });
  }
}

bool ThreadPool::claim(std::int64_t& chunk) {
  std::int64_t left = unclaimed_.load();
  while (left > 0) {
    if (unclaimed_.compare_exchange_weak(left, left - 1)) {
      chunk = chunks_ - left;
      return true;
    }
  }
  return false;
}

void ThreadPool::take_part(int slot) {
  for (std::int64_t chunk = 0; claim(chunk);) {
    try {
      (*body_)(chunk, slot);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!problem_) problem_ = std::current_exception();
    }
    if (unfinished_.fetch_sub(1) == 1 && caller_asleep_) {
      // The lock keeps the message from falling between the caller's look and its sleep.
      {
        const std::lock_guard lock(mutex_);
      }
      done_.notify_one();
    }
  }
}

void ThreadPool::work(int slot) {
  const auto wanted = [this] { return unclaimed_ > 0 || ending_; };
  while (!ending_) {
    if (!spin(wanted)) {
      std::unique_lock lock(mutex_);
      ++asleep_;
      work_.wait(lock, wanted);
      --asleep_;
    }
    take_part(slot);
  }
}

void ThreadPool::wait_until_done() {
  const auto done = [this] { return unfinished_ == 0; };
  if (spin(done)) return;
  std::unique_lock lock(mutex_);
  caller_asleep_ = true;
  done_.wait(lock, done);
  caller_asleep_ = false;
}

void ThreadPool::run(std::int64_t chunks, const Body& body) {
  // A job that began alone stays alone, its inner jobs too, though the pool is free by then.
  thread_local const ThreadPool* alone_in = nullptr;
  if (threads_ == 1 || chunks <= 1 || alone_in == this) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk, 0);
    return;
  }
  if (busy_.exchange(true)) {
    struct Restore {
      const ThreadPool* before;
      ~Restore() { alone_in = before; }
    } const restore{std::exchange(alone_in, this)};
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk, 0);
    return;
  }
  start();
  body_ = &body;
  chunks_ = chunks;
  unfinished_ = chunks;
  unclaimed_ = chunks;
  if (asleep_ > 0) {
    {
      const std::lock_guard lock(mutex_);
    }
    for (std::int64_t i = std::min<std::int64_t>(chunks, threads_) - 1; i > 0; --i) {
      work_.notify_one();
    }
  }
  take_part(0);
  wait_until_done();
  const std::exception_ptr problem = std::exchange(problem_, nullptr);
  busy_ = false;
  if (problem) std::rethrow_exception(problem);
}

}  // namespace tensorgrad::cpu
