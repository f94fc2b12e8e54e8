// Mutex, scoped lock and condition variable with annotations for clang's -Wthread-safety. A wait
// may be given a function that it calls every 100 ms, and that may end it.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#if defined(__clang__)
#define TB_ANNOTATE(x) __attribute__((x))
#else
#define TB_ANNOTATE(x)
#endif
#define TB_GUARDED_BY(x) TB_ANNOTATE(guarded_by(x))
#define TB_REQUIRES(...) TB_ANNOTATE(requires_capability(__VA_ARGS__))
#define TB_EXCLUDES(...) TB_ANNOTATE(locks_excluded(__VA_ARGS__))
#define TB_NO_ANALYSIS TB_ANNOTATE(no_thread_safety_analysis)

namespace torchbeast {

// For the thread sanitizer, which cannot see into gRPC: what this thread did before it started an
// operation comes before what another thread does after it took the completion.
#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateHappensBefore(const char* file, int line, const volatile void* address);
extern "C" void AnnotateHappensAfter(const char* file, int line, const volatile void* address);
#define TB_OPERATION_STARTS(tag) AnnotateHappensBefore(__FILE__, __LINE__, tag)
#define TB_OPERATION_COMPLETED(tag) AnnotateHappensAfter(__FILE__, __LINE__, tag)
#else
#define TB_OPERATION_STARTS(tag)
#define TB_OPERATION_COMPLETED(tag)
#endif

using Clock = std::chrono::steady_clock;

// Called between slices of a wait without any lock held. It may throw, which ends the wait: that is
// how Ctrl-C and the stop of an actor pool reach a blocked thread.
using Poll = std::function<void()>;

inline constexpr std::chrono::milliseconds kPollInterval{100};

// For tools like `top -H`; at most 15 characters.
inline void NameThisThread(const char* name) {
#if defined(__linux__)
  pthread_setname_np(pthread_self(), name);
#elif defined(__APPLE__)
  pthread_setname_np(name);
#endif
}

class TB_ANNOTATE(capability("mutex")) Mutex {
 public:
  void lock() TB_ANNOTATE(acquire_capability()) { mutex_.lock(); }
  void unlock() TB_ANNOTATE(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class TB_ANNOTATE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TB_ANNOTATE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() TB_ANNOTATE(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

  // Waits until `ready()` (evaluated under `mutex`) or until `deadline()`, which may change between
  // wake-ups. Runs `poll`, if there is one, every kPollInterval with `mutex` released.
  template <typename Ready, typename Deadline>
  void Wait(Mutex& mutex, Ready&& ready, Deadline&& deadline, const Poll& poll) TB_REQUIRES(mutex)
      TB_NO_ANALYSIS {  // Clang cannot tell that `mutex` is the one that `ready` requires.
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    struct Release {  // The caller's MutexLock unlocks, also when `poll` throws.
      std::unique_lock<std::mutex>& lock;
      ~Release() {
        if (!lock.owns_lock()) lock.lock();
        lock.release();
      }
    } release{lock};
    auto next_poll = Clock::now() + kPollInterval;
    while (!ready()) {
      const std::optional<Clock::time_point> until = deadline();
      const auto now = Clock::now();
      if (until && now >= *until) return;
      if (poll && now >= next_poll) {
        lock.unlock();
        poll();
        lock.lock();
        next_poll = Clock::now() + kPollInterval;
        continue;
      }
      if (poll) {
        condition_.wait_until(lock, until ? std::min(*until, next_poll) : next_poll);
      } else if (until) {
        condition_.wait_until(lock, *until);
      } else {
        condition_.wait(lock);
      }
    }
  }

  template <typename Ready>
  void Wait(Mutex& mutex, Ready&& ready, const Poll& poll) TB_REQUIRES(mutex) {
    Wait(
        mutex, ready, [] { return std::optional<Clock::time_point>(); }, poll);
  }

 private:
  std::condition_variable condition_;
};

}  // namespace torchbeast
