#include "dynamic_batcher.h"

namespace torchbeast {

std::vector<DynamicBatcher::Slice> DynamicBatcher::Call::Wait(const Poll& poll) {
  MutexLock lock(mutex_);
  done_.Wait(
      mutex_, [this] { return dropped_ || pending_ == 0; }, poll);
  if (dropped_) throw AsyncError();
  return std::move(slices_);
}

void DynamicBatcher::Call::Answer(size_t index, Slice slice) {
  MutexLock lock(mutex_);
  slices_[index] = std::move(slice);
  if (--pending_ == 0) done_.NotifyAll();
}

void DynamicBatcher::Call::Drop() {
  MutexLock lock(mutex_);
  dropped_ = true;
  done_.NotifyAll();
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

std::shared_ptr<DynamicBatcher::Call> DynamicBatcher::Submit(std::vector<TensorNest> inputs) {
  for (const TensorNest& input : inputs) CheckBatchable(input, options_.batch_dim);
  auto call = std::make_shared<Call>(inputs.size());
  std::vector<Entry> entries;
  entries.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) entries.emplace_back(std::move(inputs[i]), call, i);
  queue_.EnqueueAll(std::move(entries));
  return call;
}

TensorNest DynamicBatcher::Compute(TensorNest inputs, const Poll& poll) {
  std::vector<TensorNest> items;
  items.push_back(std::move(inputs));
  const Slice slice = Submit(std::move(items))->Wait(poll).front();
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
