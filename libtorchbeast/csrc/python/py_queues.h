// BatchingQueue and DynamicBatcher for Python, and how their arguments are read.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/tensor.h"
#include "pool/batching_queue.h"
#include "pool/dynamic_batcher.h"

namespace torchbeast {

// std::invalid_argument unless `value` is a number of at least 0; it may be infinite.
std::chrono::milliseconds Milliseconds(double value, const char* name);

class PyBatchingQueue {
 public:
  // As BatchingQueue in _C.pyi.
  PyBatchingQueue(int64_t batch_dim, int64_t minimum_batch_size, int64_t maximum_batch_size,
                  std::optional<double> timeout_ms, bool check_inputs,
                  std::optional<int64_t> maximum_queue_size, nanobind::object allocator);

  void Enqueue(nanobind::handle inputs);
  // Throws nb::stop_iteration at the end.
  nanobind::object Next();

  const std::shared_ptr<BatchingQueue<TensorNest>>& queue() const { return queue_; }
  int batch_dim() const { return batch_dim_; }

 private:
  const int batch_dim_;
  const bool check_inputs_;
  BufferPool buffers_;
  const std::shared_ptr<BatchingQueue<TensorNest>> queue_;
};

class PyDynamicBatcher {
 public:
  // As DynamicBatcher in _C.pyi.
  PyDynamicBatcher(int64_t batch_dim, int64_t minimum_batch_size, int64_t maximum_batch_size,
                   std::optional<double> timeout_ms, bool check_outputs);

  nanobind::object Compute(nanobind::handle inputs);
  // Throws nb::stop_iteration at the end.
  std::unique_ptr<DynamicBatcher::Batch> Next();

  const std::shared_ptr<DynamicBatcher>& batcher() const { return batcher_; }

 private:
  const std::shared_ptr<DynamicBatcher> batcher_;
};

// Adds the classes to the module.
void BindQueues(nanobind::module_& m);

}  // namespace torchbeast
