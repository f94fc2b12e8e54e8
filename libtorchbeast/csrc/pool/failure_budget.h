// Counts failures within a time: a limited number is forgiven, and forgotten after a while.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>

#include "core/sync.h"

namespace torchbeast {

// Not thread-safe.
class FailureBudget {
 public:
  explicit FailureBudget(std::chrono::milliseconds window) : window_(window) {}

  // Adds a failure; returns how many there were within the window, this one included.
  int Add(Clock::time_point now) {
    failures_.push_back(now);
    while (now - failures_.front() > window_) failures_.pop_front();
    return static_cast<int>(failures_.size());
  }

  std::chrono::milliseconds window() const { return window_; }

 private:
  std::chrono::milliseconds window_;
  std::deque<Clock::time_point> failures_;
};

}  // namespace torchbeast
