#include "python/py_queues.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "python/py_gil.h"
#include "python/py_sizes.h"
#include "python/py_tensor.h"

namespace nb = nanobind;

namespace torchbeast {

namespace {

// As good as for ever, and far from overflowing a clock.
constexpr double kMaxMilliseconds = 1e12;

// At most kMaxMilliseconds. Throws std::invalid_argument for less than 0 and for NaN.
double CheckMilliseconds(double value, const char* name) {
  if (!(value >= 0)) {
    throw std::invalid_argument(std::string(name) + " must be >= 0");
  }
  return std::min(value, kMaxMilliseconds);
}

std::optional<std::chrono::microseconds> Timeout(std::optional<double> value) {
  if (!value) return std::nullopt;
  const double milliseconds = CheckMilliseconds(*value, "timeout_ms");
  return std::chrono::microseconds(static_cast<int64_t>(1000 * milliseconds));
}

// Memory from a Python callable `allocator(num_bytes) -> tensor`, for example pinned memory.
BufferPool::Allocator PythonAllocator(nb::object allocator) {
  if (allocator.is_none()) return {};
  // Released under the GIL, whoever drops the last pool.
  auto function =
      std::shared_ptr<nb::object>(new nb::object(std::move(allocator)), DeleteWithGil<nb::object>);
  return [function](size_t bytes) -> std::shared_ptr<void> {
    return WithGil([&]() {
      const Tensor tensor = ReadTensors((*function)(bytes)).front();
      if (tensor.NumBytes() < static_cast<int64_t>(bytes)) {
        throw std::invalid_argument("allocator returned too few bytes");
      }
      return std::shared_ptr<void>(tensor.owner, tensor.data);
    });
  };
}

}  // namespace

std::chrono::milliseconds Milliseconds(double value, const char* name) {
  return std::chrono::milliseconds(static_cast<int64_t>(CheckMilliseconds(value, name)));
}

PyBatchingQueue::PyBatchingQueue(int64_t batch_dim, int64_t minimum_batch_size,
                                 int64_t maximum_batch_size, std::optional<double> timeout_ms,
                                 bool check_inputs, std::optional<int64_t> maximum_queue_size,
                                 nb::object allocator)
    : batch_dim_(CheckBatchDim(batch_dim)),
      check_inputs_(check_inputs),
      buffers_(size_t{256} << 20, PythonAllocator(std::move(allocator))),
      queue_(std::make_shared<BatchingQueue<TensorNest>>(BatchingOptions{
          minimum_batch_size, maximum_batch_size, Timeout(timeout_ms), maximum_queue_size})) {}

void PyBatchingQueue::Enqueue(nb::handle inputs) {
  TensorNest item = ReadTensors(inputs);
  BlockingCall no_gil;
  if (check_inputs_) CheckBatchable(item, batch_dim_);
  queue_->Enqueue(std::move(item), CheckSignals);
}

nb::object PyBatchingQueue::Next() {
  std::optional<TensorNest> batch;
  {
    BlockingCall no_gil;
    std::vector<TensorNest> items = queue_->DequeueMany(CheckSignals);
    if (!items.empty()) batch = Concatenate(items, batch_dim_, buffers_);
  }
  if (!batch) throw nb::stop_iteration();
  return WriteTensors(*batch);
}

PyDynamicBatcher::PyDynamicBatcher(int64_t batch_dim, int64_t minimum_batch_size,
                                   int64_t maximum_batch_size, std::optional<double> timeout_ms,
                                   bool check_outputs)
    : batcher_(std::make_shared<DynamicBatcher>(
          DynamicBatcher::Options{CheckBatchDim(batch_dim),
                                  BatchingOptions{minimum_batch_size, maximum_batch_size,
                                                  Timeout(timeout_ms), std::nullopt},
                                  check_outputs})) {}

nb::object PyDynamicBatcher::Compute(nb::handle inputs) {
  TensorNest item = ReadTensors(inputs);
  TensorNest outputs;
  {
    BlockingCall no_gil;
    outputs = batcher_->Compute(std::move(item), CheckSignals);
  }
  return WriteTensors(outputs);
}

std::unique_ptr<DynamicBatcher::Batch> PyDynamicBatcher::Next() {
  std::unique_ptr<DynamicBatcher::Batch> batch;
  {
    BlockingCall no_gil;
    batch = batcher_->NextBatch(CheckSignals);
  }
  if (!batch) throw nb::stop_iteration();
  return batch;
}

namespace {

nb::object GetInputs(DynamicBatcher::Batch& batch) {
  const TensorNest* inputs;
  {
    BlockingCall no_gil;
    inputs = &batch.GetInputs();
  }
  return WriteTensors(*inputs);
}

void SetOutputs(DynamicBatcher::Batch& batch, nb::handle outputs) {
  TensorNest copy = CopyTensors(outputs, batch.buffers());
  BlockingCall no_gil;
  batch.SetOutputs(std::move(copy));
}

}  // namespace

void BindQueues(nb::module_& m) {
  nb::class_<PyBatchingQueue>(m, "BatchingQueue")
      .def(nb::init<int64_t, int64_t, int64_t, std::optional<double>, bool, std::optional<int64_t>,
                    nb::object>(),
           nb::arg("batch_dim") = 1, nb::arg("minimum_batch_size") = 1,
           nb::arg("maximum_batch_size") = 1024, nb::arg("timeout_ms") = nb::none(),
           nb::arg("check_inputs") = true, nb::arg("maximum_queue_size") = nb::none(),
           nb::arg("allocator") = nb::none())
      .def("enqueue", &PyBatchingQueue::Enqueue, nb::arg("inputs"))
      .def(
          "close", [](PyBatchingQueue& q) { q.queue()->Close(); }, NoGil())
      .def(
          "is_closed", [](PyBatchingQueue& q) { return q.queue()->is_closed(); }, NoGil())
      .def(
          "size", [](PyBatchingQueue& q) { return q.queue()->size(); }, NoGil())
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &PyBatchingQueue::Next);

  nb::class_<DynamicBatcher::Batch>(m, "Batch")
      .def("get_inputs", &GetInputs)
      .def("set_outputs", &SetOutputs, nb::arg("outputs"));

  nb::class_<PyDynamicBatcher>(m, "DynamicBatcher")
      .def(nb::init<int64_t, int64_t, int64_t, std::optional<double>, bool>(),
           nb::arg("batch_dim") = 1, nb::arg("minimum_batch_size") = 1,
           nb::arg("maximum_batch_size") = 1024, nb::arg("timeout_ms") = 100,
           nb::arg("check_outputs") = true)
      .def("compute", &PyDynamicBatcher::Compute, nb::arg("inputs"))
      .def(
          "close", [](PyDynamicBatcher& b) { b.batcher()->Close(); }, NoGil())
      .def(
          "is_closed", [](PyDynamicBatcher& b) { return b.batcher()->is_closed(); }, NoGil())
      .def(
          "size", [](PyDynamicBatcher& b) { return b.batcher()->size(); }, NoGil())
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &PyDynamicBatcher::Next);
}

}  // namespace torchbeast
