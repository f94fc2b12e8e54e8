#include "pool/dynamic_batcher.h"

#include <atomic>
#include <cstddef>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/errors.h"

namespace torchbeast {

// The inputs of a submission that have neither outputs nor been dropped yet.
class DynamicBatcher::PendingSubmission {
 public:
  PendingSubmission(size_t num_inputs, OnOutputs on_outputs)
      : on_outputs_(std::move(on_outputs)), num_pending_(num_inputs), slices_(num_inputs) {}

  // Takes in the outputs for input `index`; none if it was dropped.
  void Settle(size_t index, std::optional<Slice> slice) {
    if (slice) {
      slices_[index] = std::move(*slice);  // Of this index alone, and before the count goes down.
    } else {
      dropped_ = true;
    }
    if (--num_pending_ > 0) return;
    on_outputs_(dropped_ ? std::nullopt : std::optional(std::move(slices_)));
  }

 private:
  const OnOutputs on_outputs_;
  std::atomic<size_t> num_pending_;
  std::atomic<bool> dropped_{false};
  std::vector<Slice> slices_;
};

// One queued input. Whoever takes it out of the queue settles it, once.
struct DynamicBatcher::Entry {
  TensorNest inputs;
  std::shared_ptr<PendingSubmission> submission;
  // Among the submission's inputs.
  size_t index = 0;
};

template <typename Entries>
void DynamicBatcher::Drop(Entries& entries) {
  for (Entry& entry : entries) {
    // One that was moved into the queue has none.
    if (entry.submission) entry.submission->Settle(entry.index, std::nullopt);
  }
}

DynamicBatcher::Batch::Batch(const DynamicBatcher::Options& options, std::vector<Entry> entries,
                             std::shared_ptr<BufferPool> buffers)
    : options_(options), entries_(std::move(entries)), buffers_(std::move(buffers)) {}

DynamicBatcher::Batch::~Batch() {
  if (!has_outputs_) Drop(entries_);
}

int64_t DynamicBatcher::Batch::size() const { return static_cast<int64_t>(entries_.size()); }

const TensorNest& DynamicBatcher::Batch::GetInputs() {
  if (!inputs_) {
    std::vector<TensorNest> inputs;
    inputs.reserve(entries_.size());
    for (const Entry& entry : entries_) inputs.push_back(entry.inputs);
    inputs_ = Concatenate(inputs, options_.batch_dim, *buffers_);
    for (Entry& entry : entries_) entry.inputs = {};
  }
  return *inputs_;
}

void DynamicBatcher::Batch::SetOutputs(TensorNest outputs) {
  if (has_outputs_) throw std::runtime_error("set_outputs called twice");
  if (options_.check_outputs) CheckOutputs(outputs);
  auto shared = std::make_shared<const TensorNest>(std::move(outputs));
  has_outputs_ = true;
  int64_t offset = 0;
  for (const Entry& entry : entries_)
    entry.submission->Settle(entry.index, Slice{shared, offset++});
}

void DynamicBatcher::Batch::CheckOutputs(const TensorNest& outputs) const {
  const int dim = options_.batch_dim;
  outputs.for_each([&](const Tensor& tensor) {
    if (tensor.shape.rank() <= dim) {
      throw std::invalid_argument("With batch dimension " + std::to_string(dim) +
                                  ", output shape must have at least " + std::to_string(dim + 1) +
                                  " dimensions, but got " + tensor.shape.ToString());
    }
    if (tensor.shape[dim] != size()) {
      throw std::invalid_argument(
          "Output shape must have the same batch dimension as the input batch size. Expected: " +
          std::to_string(size()) + ", observed: " + std::to_string(tensor.shape[dim]));
    }
  });
}

DynamicBatcher::DynamicBatcher(Options options)
    : options_(options),
      buffers_(std::make_shared<BufferPool>()),
      queue_(std::make_unique<BatchingQueue<Entry>>(options.batching)) {}

DynamicBatcher::~DynamicBatcher() {
  if (!is_closed()) Close();
}

void DynamicBatcher::Close() {
  auto entries = queue_->CloseAndDrain();
  Drop(entries);
}

bool DynamicBatcher::is_closed() const { return queue_->is_closed(); }

int64_t DynamicBatcher::size() const { return queue_->size(); }

void DynamicBatcher::Submit(std::vector<Submission> submissions) {
  for (const Submission& submission : submissions) {
    for (const TensorNest& input : submission.inputs) CheckBatchable(input, options_.batch_dim);
  }
  std::vector<Entry> entries;
  for (Submission& submission : submissions) {
    auto pending = std::make_shared<PendingSubmission>(submission.inputs.size(),
                                                       std::move(submission.on_outputs));
    for (size_t i = 0; i < submission.inputs.size(); ++i) {
      entries.push_back({std::move(submission.inputs[i]), pending, i});
    }
  }
  try {
    queue_->EnqueueAll(&entries);
  } catch (...) {
    Drop(entries);
    throw;
  }
}

TensorNest DynamicBatcher::Compute(TensorNest inputs, const Poll& poll) {
  // The callback may come after `poll` ended the wait.
  auto result = std::make_shared<std::promise<std::optional<std::vector<Slice>>>>();
  auto future = result->get_future();
  std::vector<Submission> submissions(1);
  submissions[0].inputs.push_back(std::move(inputs));
  submissions[0].on_outputs = [result](std::optional<std::vector<Slice>> slices) {
    result->set_value(std::move(slices));
  };
  Submit(std::move(submissions));
  while (future.wait_for(kPollInterval) != std::future_status::ready) {
    if (poll) poll();
  }
  const std::optional<std::vector<Slice>> slices = future.get();
  if (!slices && is_closed()) throw ClosedBatchingQueue("Batching queue closed during compute");
  if (!slices) throw AsyncError();
  const Slice& slice = slices->front();
  return slice.outputs->map([&](const Tensor& tensor) {
    return CopySlice(tensor, options_.batch_dim, slice.offset, 1, *buffers_);
  });
}

std::unique_ptr<DynamicBatcher::Batch> DynamicBatcher::NextBatch(const Poll& poll) {
  std::vector<Entry> entries = queue_->DequeueMany(poll);
  if (entries.empty()) return nullptr;
  return std::make_unique<Batch>(options_, std::move(entries), buffers_);
}

}  // namespace torchbeast
