// Thread-safe meeting point of callers, each with inputs for a model, and model threads that answer
// many of them at once.
//
// Callers Submit() and are called back, or Compute() and wait; model threads loop over NextBatch(),
// read GetInputs() and SetOutputs(). Callers learn if their batch was dropped unanswered or was
// still queued at Close().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "batching_queue.h"
#include "tensor.h"

namespace torchbeast {

class DynamicBatcher {
 public:
  struct Options {
    int64_t batch_dim = 1;
    BatchingOptions batching;
    // Whether SetOutputs checks shapes.
    bool check_outputs = true;
  };

  // The answer to one input: rows [offset, offset + size) of `outputs` along batch_dim.
  struct Slice {
    std::shared_ptr<const TensorNest> outputs;
    int64_t offset = 0;
    int64_t size = 0;
  };

  // Called once, by the thread that answered or dropped the last of the inputs, without locks:
  // one slice per input, in order; or, if any input was dropped, `dropped` and nothing to rely on.
  using Done = std::function<void(std::vector<Slice> slices, bool dropped)>;

  // Inputs that one caller submits together.
  struct Submission {
    std::vector<TensorNest> inputs;
    Done done;
  };

 private:
  // What is left to do for a submission.
  class Call {
   public:
    Call(size_t num_inputs, Done done)
        : done_(std::move(done)), pending_(num_inputs), slices_(num_inputs) {}
    void Answer(size_t index, Slice slice) TB_EXCLUDES(mutex_);
    void Drop() TB_EXCLUDES(mutex_);

   private:
    void CountDown(std::optional<std::pair<size_t, Slice>> answer) TB_EXCLUDES(mutex_);

    const Done done_;
    Mutex mutex_;
    size_t pending_ TB_GUARDED_BY(mutex_);
    bool dropped_ TB_GUARDED_BY(mutex_) = false;
    std::vector<Slice> slices_ TB_GUARDED_BY(mutex_);
  };

  // One queued input. Owns its promise: destroyed unanswered, it is dropped.
  struct Entry {
    Entry(TensorNest inputs, std::shared_ptr<Call> call, size_t index)
        : inputs(std::move(inputs)), call(std::move(call)), index(index) {}
    Entry(Entry&&) = default;
    Entry& operator=(Entry&&) = default;
    Entry(const Entry&) = delete;
    ~Entry() {
      if (call) call->Drop();
    }

    TensorNest inputs;
    std::shared_ptr<Call> call;
    size_t index;
  };

 public:
  // Inputs dequeued together. To be used by one thread at a time.
  class Batch {
   public:
    Batch(const DynamicBatcher::Options& options, std::vector<Entry> entries,
          std::shared_ptr<BufferPool> pool);
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    // All inputs side by side along batch_dim. nest::NestError if they do not fit together.
    const TensorNest& GetInputs();
    // Answers every caller. std::runtime_error "set_outputs called twice"; std::invalid_argument if
    // the shapes do not fit the inputs'.
    void SetOutputs(TensorNest outputs);
    // Rows along batch_dim.
    int64_t size() const { return size_; }

   private:
    const DynamicBatcher::Options options_;
    std::vector<Entry> entries_;
    const std::shared_ptr<BufferPool> pool_;
    int64_t size_ = 0;
    bool has_inputs_ = false;
    bool has_outputs_ = false;
    TensorNest inputs_;
  };

  explicit DynamicBatcher(Options options);

  // Queues inputs under one lock. std::invalid_argument if one has no batch dimension. Throws
  // ClosedBatchingQueue if the batcher is closed, having dropped them.
  void Submit(std::vector<Submission> submissions);
  // Submits `inputs`, waits, and returns a copy of the rows that answer them. AsyncError if they
  // were dropped.
  TensorNest Compute(TensorNest inputs, const Poll& poll = {});
  // The next batch; null when closed.
  std::unique_ptr<Batch> NextBatch(const Poll& poll = {});
  // Fails everything queued. std::runtime_error if it was closed before.
  void Close() { queue_.CloseAndDrain(); }
  bool is_closed() const { return queue_.is_closed(); }
  int64_t size() const { return queue_.size(); }
  const Options& options() const { return options_; }
  BufferPool& pool() { return *pool_; }

 private:
  const Options options_;
  const std::shared_ptr<BufferPool> pool_;
  BatchingQueue<Entry> queue_;
};

}  // namespace torchbeast
