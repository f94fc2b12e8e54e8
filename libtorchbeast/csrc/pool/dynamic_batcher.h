// Thread-safe meeting point of callers, each with inputs for a model, and model threads that answer
// many of them at once.
//
// Callers Submit() and are called back, or Compute() and wait; model threads loop over NextBatch(),
// read GetInputs() and SetOutputs(). An input is dropped if its batch is destroyed without outputs
// or if it is still queued at Close(); its caller is told.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/tensor.h"
#include "pool/batching_queue.h"

namespace torchbeast {

class DynamicBatcher {
 private:
  struct Entry;

 public:
  struct Options {
    // The dimension along which inputs are put side by side and outputs are divided.
    int batch_dim = 1;
    // Sizes count inputs, whatever their extent along batch_dim.
    BatchingOptions batching;
    // Whether SetOutputs checks shapes.
    bool check_outputs = true;
  };

  // The outputs for one input: row `offset` of `outputs` along batch_dim.
  struct Slice {
    // Outputs of the whole batch.
    std::shared_ptr<const TensorNest> outputs;
    // The input's place in the batch.
    int64_t offset = 0;
  };

  // Called once, by the thread that answered or dropped the last of the inputs, without locks:
  // with one slice per input, in order; with none if any input was dropped.
  using OnOutputs = std::function<void(std::optional<std::vector<Slice>>)>;

  // Inputs that one caller submits together.
  struct Submission {
    // At least one.
    std::vector<TensorNest> inputs;
    // Called when all of `inputs` have outputs or were dropped.
    OnOutputs on_outputs;
  };

  // Inputs dequeued together. To be used by one thread at a time. The destructor drops the inputs
  // if there were no outputs.
  class Batch {
   public:
    Batch(const DynamicBatcher::Options& options, std::vector<Entry> entries,
          std::shared_ptr<BufferPool> buffers);
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    // All inputs side by side along batch_dim. nest::NestError if they do not fit together.
    const TensorNest& GetInputs();
    // Gives every caller its row: `outputs` have one per input along batch_dim. std::runtime_error
    // "set_outputs called twice"; std::invalid_argument if they have another number.
    void SetOutputs(TensorNest outputs);
    // Inputs.
    int64_t size() const;
    BufferPool& buffers() { return *buffers_; }

   private:
    void CheckOutputs(const TensorNest& outputs) const;

    const DynamicBatcher::Options options_;
    std::vector<Entry> entries_;
    const std::shared_ptr<BufferPool> buffers_;
    bool has_outputs_ = false;
    std::optional<TensorNest> inputs_;
  };

  explicit DynamicBatcher(Options options);
  // Closes the batcher if nobody did.
  ~DynamicBatcher();
  DynamicBatcher(const DynamicBatcher&) = delete;
  DynamicBatcher& operator=(const DynamicBatcher&) = delete;

  // Queues inputs under one lock. std::invalid_argument if one has no batch dimension. Throws
  // ClosedBatchingQueue if the batcher is closed, having dropped them.
  void Submit(std::vector<Submission> submissions);
  // Submits `inputs`, waits, and returns a copy of the row that answers them. AsyncError if they
  // were dropped, ClosedBatchingQueue if the batcher is closed by then, too.
  TensorNest Compute(TensorNest inputs, const Poll& poll = {});
  // The next batch; null when closed.
  std::unique_ptr<Batch> NextBatch(const Poll& poll = {});
  // Drops everything queued and refuses further inputs. std::runtime_error if it was closed before.
  void Close();
  bool is_closed() const;
  // Inputs queued.
  int64_t size() const;
  const Options& options() const { return options_; }

 private:
  class PendingSubmission;

  // Tells the callers of `entries` that these were dropped.
  template <typename Entries>
  static void Drop(Entries& entries);

  const Options options_;
  const std::shared_ptr<BufferPool> buffers_;
  const std::unique_ptr<BatchingQueue<Entry>> queue_;
};

}  // namespace torchbeast
