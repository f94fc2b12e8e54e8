// Thread-safe, closable queue, optionally bounded, that hands its items out in batches.
//
// Enqueue blocks while the queue is full, DequeueMany until a batch is there. Close() refuses
// further items and wakes everybody; what is already inside can still be dequeued.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/errors.h"
#include "core/sync.h"

namespace torchbeast {

struct BatchingOptions {
  // Items that a batch waits for, at least 1.
  int64_t minimum_batch_size = 1;
  // Items in a batch at most.
  int64_t maximum_batch_size = 1024;
  // How long a consumer that sees items, but too few for a batch, waits for more; for ever if not
  // set.
  std::optional<std::chrono::microseconds> timeout;
  // Items that the queue holds before Enqueue waits; no bound if not set.
  std::optional<int64_t> maximum_queue_size;
};

template <typename Item>
class BatchingQueue {
 public:
  // std::invalid_argument for sizes that make no sense.
  explicit BatchingQueue(BatchingOptions options) : options_(options) {
    if (options_.minimum_batch_size < 1) {
      throw std::invalid_argument("Min batch size must be >= 1");
    }
    if (options_.maximum_batch_size < options_.minimum_batch_size) {
      throw std::invalid_argument("Max batch size must be >= min batch size");
    }
    if (options_.timeout && options_.timeout->count() < 0) {
      throw std::invalid_argument("Timeout must be >= 0 ms");
    }
    if (options_.maximum_queue_size && *options_.maximum_queue_size < options_.minimum_batch_size) {
      throw std::invalid_argument("Max queue size must be >= min batch size");
    }
  }

  BatchingQueue(const BatchingQueue&) = delete;
  BatchingQueue& operator=(const BatchingQueue&) = delete;

  // Adds `item`, waiting for room first. Throws ClosedBatchingQueue if the queue is closed or gets
  // closed during the wait, and whatever `poll` throws.
  void Enqueue(Item item, const Poll& poll = {}) TB_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    has_room_.Wait(
        mutex_, [this]() TB_REQUIRES(mutex_) { return closed_ || !IsFull(); }, poll);
    if (closed_) throw ClosedBatchingQueue();
    items_.push_back(std::move(item));
    has_items_.NotifyOne();
  }

  // Adds `items` in order under one lock, whether or not there is room, and empties `items`. Leaves
  // them if it throws ClosedBatchingQueue; after std::bad_alloc some may be in the queue.
  void EnqueueAll(std::vector<Item>* items) TB_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (closed_) throw ClosedBatchingQueue();
    for (Item& item : *items) items_.push_back(std::move(item));
    items->clear();
    has_items_.NotifyOne();
  }

  // Takes from minimum_batch_size to maximum_batch_size items, fewer after the timeout or when the
  // queue is closed. Empty if and only if the queue is closed and empty.
  std::vector<Item> DequeueMany(const Poll& poll = {}) TB_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    std::optional<Clock::time_point> deadline;
    uint64_t seen = num_batches_;
    has_items_.Wait(
        mutex_,
        [this]() TB_REQUIRES(mutex_) {
          return closed_ || static_cast<int64_t>(items_.size()) >= options_.minimum_batch_size;
        },
        [this, &deadline, &seen]() TB_REQUIRES(mutex_) {
          // Another consumer may have taken the items that the deadline was for.
          if (items_.empty() || seen != num_batches_) deadline.reset();
          seen = num_batches_;
          if (!items_.empty() && options_.timeout && !deadline) {
            deadline = Clock::now() + *options_.timeout;
          }
          return deadline;
        },
        poll);
    std::vector<Item> batch;
    while (!items_.empty() && static_cast<int64_t>(batch.size()) < options_.maximum_batch_size) {
      batch.push_back(std::move(items_.front()));
      items_.pop_front();
    }
    ++num_batches_;
    has_room_.NotifyAll();
    // Another consumer may have slept through the notification that woke this one.
    if (!items_.empty()) has_items_.NotifyOne();
    return batch;
  }

  // std::runtime_error if it was closed before.
  void Close() TB_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (closed_) throw std::runtime_error("Queue was closed already");
    closed_ = true;
    has_room_.NotifyAll();
    has_items_.NotifyAll();
  }

  // As Close(), and removes and returns the items that nobody has dequeued.
  std::deque<Item> CloseAndDrain() TB_EXCLUDES(mutex_) {
    Close();
    MutexLock lock(mutex_);
    return std::exchange(items_, {});
  }

  bool is_closed() const TB_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return closed_;
  }

  int64_t size() const TB_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(items_.size());
  }

 private:
  bool IsFull() const TB_REQUIRES(mutex_) {
    return options_.maximum_queue_size &&
           static_cast<int64_t>(items_.size()) >= *options_.maximum_queue_size;
  }

  const BatchingOptions options_;
  mutable Mutex mutex_;
  CondVar has_room_;
  CondVar has_items_;
  bool closed_ TB_GUARDED_BY(mutex_) = false;
  uint64_t num_batches_ TB_GUARDED_BY(mutex_) = 0;
  std::deque<Item> items_ TB_GUARDED_BY(mutex_);
};

}  // namespace torchbeast
