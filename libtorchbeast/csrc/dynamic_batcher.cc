#include "dynamic_batcher.h"

namespace torchbeast {

void DynamicBatcher::Call::Answer(size_t index, Slice slice) {
  CountDown(std::make_pair(index, std::move(slice)));
}

void DynamicBatcher::Call::Drop() { CountDown(std::nullopt); }

void DynamicBatcher::Call::CountDown(std::optional<std::pair<size_t, Slice>> answer) {
  std::vector<Slice> slices;
  bool dropped;
  {
    MutexLock lock(mutex_);
    if (answer) {
      slices_[answer->first] = std::move(answer->second);
    } else {
      dropped_ = true;
    }
    if (--pending_ > 0) return;
    slices = std::move(slices_);
    dropped = dropped_;
  }
  done_(std::move(slices), dropped);
}

DynamicBatcher::Batch::Batch(const DynamicBatcher::Options& options, std::vector<Entry> entries,
                             std::shared_ptr<BufferPool> pool)
    : options_(options), entries_(std::move(entries)), pool_(std::move(pool)) {
  const int dim = static_cast<int>(options_.batch_dim);
  for (const Entry& entry : entries_) size_ += entry.inputs.front().shape[dim];
}

const TensorNest& DynamicBatcher::Batch::GetInputs() {
  if (!has_inputs_) {
    std::vector<TensorNest> inputs;
    inputs.reserve(entries_.size());
    for (const Entry& entry : entries_) inputs.push_back(entry.inputs);
    inputs_ = Concatenate(inputs, static_cast<int>(options_.batch_dim), *pool_);
    has_inputs_ = true;
  }
  return inputs_;
}

void DynamicBatcher::Batch::SetOutputs(TensorNest outputs) {
  if (has_outputs_) throw std::runtime_error("set_outputs called twice");
  const int dim = static_cast<int>(options_.batch_dim);
  if (options_.check_outputs) {
    outputs.for_each([&](const Tensor& tensor) {
      if (tensor.shape.rank() <= dim) {
        throw std::invalid_argument("With batch dimension " + std::to_string(dim) +
                                    ", output shape must have at least " + std::to_string(dim + 1) +
                                    " dimensions, but got " + tensor.shape.ToString());
      }
      if (tensor.shape[dim] != size_) {
        throw std::invalid_argument(
            "Output shape must have the same batch dimension as the input batch size. Expected: " +
            std::to_string(size_) + ", observed: " + std::to_string(tensor.shape[dim]));
      }
    });
  }
  has_outputs_ = true;
  auto shared = std::make_shared<const TensorNest>(std::move(outputs));
  int64_t offset = 0;
  for (Entry& entry : entries_) {
    const int64_t size = entry.inputs.front().shape[dim];
    const std::shared_ptr<Call> call = std::move(entry.call);
    call->Answer(entry.index, Slice{shared, offset, size});
    offset += size;
  }
}

DynamicBatcher::DynamicBatcher(Options options)
    : options_(options), pool_(std::make_shared<BufferPool>()), queue_(options.batching) {
  if (options_.batch_dim < 0) throw std::invalid_argument("batch_dim must be >= 0");
}

void DynamicBatcher::Submit(std::vector<Submission> submissions) {
  for (const Submission& submission : submissions) {
    for (const TensorNest& input : submission.inputs) CheckBatchable(input, options_.batch_dim);
  }
  std::vector<Entry> entries;
  for (Submission& submission : submissions) {
    auto call = std::make_shared<Call>(submission.inputs.size(), std::move(submission.done));
    for (size_t i = 0; i < submission.inputs.size(); ++i) {
      entries.emplace_back(std::move(submission.inputs[i]), call, i);
    }
  }
  queue_.EnqueueAll(std::move(entries));
}

TensorNest DynamicBatcher::Compute(TensorNest inputs, const Poll& poll) {
  // Shared with the callback, which may come after `poll` ended the wait.
  struct Result {
    Mutex mutex;
    CondVar ready;
    bool is_ready TB_GUARDED_BY(mutex) = false;
    bool dropped TB_GUARDED_BY(mutex) = false;
    Slice slice TB_GUARDED_BY(mutex);
  };
  auto result = std::make_shared<Result>();
  std::vector<Submission> submissions(1);
  submissions[0].inputs.push_back(std::move(inputs));
  submissions[0].done = [result](std::vector<Slice> slices, bool dropped) {
    MutexLock lock(result->mutex);
    result->is_ready = true;
    result->dropped = dropped;
    if (!dropped) result->slice = std::move(slices.front());
    result->ready.NotifyAll();
  };
  Submit(std::move(submissions));
  Slice slice;
  {
    MutexLock lock(result->mutex);
    result->ready.Wait(
        result->mutex, [&] { return result->is_ready; }, poll);
    if (result->dropped) throw AsyncError();
    slice = std::move(result->slice);
  }
  const int dim = static_cast<int>(options_.batch_dim);
  return slice.outputs->map([&](const Tensor& tensor) {
    return CopySlice(tensor, dim, slice.offset, slice.size, *pool_);
  });
}

std::unique_ptr<DynamicBatcher::Batch> DynamicBatcher::NextBatch(const Poll& poll) {
  std::vector<Entry> entries = queue_.DequeueMany(poll);
  if (entries.empty()) return nullptr;
  return std::make_unique<Batch>(options_, std::move(entries), pool_);
}

}  // namespace torchbeast
