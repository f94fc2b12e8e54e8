// The Python module: the public names, how arguments are read, and who holds the GIL.
//
// Rule: no call waits, takes a lock of the library or talks to the network with the GIL held.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actor_pool.h"
#include "env_server.h"
#include "python/py_environment.h"
#include "python/py_gil.h"
#include "python/py_tensor.h"

namespace nb = nanobind;

namespace torchbeast {

namespace {

// As good as for ever, and far from overflowing a clock.
constexpr double kMaxMilliseconds = 1e12;

// std::invalid_argument unless `value` is a number of at least 0; it may be infinite.
std::chrono::milliseconds Milliseconds(double value, const char* name) {
  if (!(value >= 0)) {
    throw std::invalid_argument(std::string(name) + " must be >= 0");
  }
  return std::chrono::milliseconds(static_cast<int64_t>(std::min(value, kMaxMilliseconds)));
}

std::optional<std::chrono::milliseconds> Timeout(std::optional<double> value) {
  if (!value) return std::nullopt;
  return Milliseconds(*value, "timeout_ms");
}

// Memory from a Python callable `allocator(num_bytes) -> tensor`, for example pinned memory.
BufferPool::Allocator PythonAllocator(nb::object allocator) {
  if (allocator.is_none()) return {};
  // Released under the GIL, whoever drops the last pool.
  auto function =
      std::shared_ptr<nb::object>(new nb::object(std::move(allocator)), DeleteWithGil<nb::object>);
  return [function](size_t bytes) -> std::shared_ptr<void> {
    GilLock gil;
    BufferPool none;
    const Tensor tensor = ReadTensors((*function)(bytes), none).front();
    if (tensor.NumBytes() < static_cast<int64_t>(bytes)) {
      throw std::invalid_argument("allocator returned too few bytes");
    }
    return std::shared_ptr<void>(tensor.owner, tensor.data);
  };
}

class PyBatchingQueue {
 public:
  PyBatchingQueue(int64_t batch_dim, int64_t minimum_batch_size, int64_t maximum_batch_size,
                  std::optional<double> timeout_ms, bool check_inputs,
                  std::optional<int64_t> maximum_queue_size, nb::object allocator)
      : batch_dim_(batch_dim),
        check_inputs_(check_inputs),
        buffers_(size_t{256} << 20, PythonAllocator(std::move(allocator))),
        queue_(std::make_shared<BatchingQueue<TensorNest>>(BatchingOptions{
            minimum_batch_size, maximum_batch_size, Timeout(timeout_ms), maximum_queue_size})) {
    if (batch_dim < 0) throw std::invalid_argument("batch_dim must be >= 0");
  }

  void Enqueue(nb::handle inputs) {
    TensorNest item = ReadTensors(inputs, buffers_);
    BlockingCall no_gil;
    if (check_inputs_) CheckBatchable(item, batch_dim_);
    queue_->Enqueue(std::move(item), CheckSignals);
  }

  nb::object Next() {
    std::optional<TensorNest> batch;
    {
      BlockingCall no_gil;
      std::vector<TensorNest> items = queue_->DequeueMany(CheckSignals);
      if (!items.empty()) batch = Concatenate(items, static_cast<int>(batch_dim_), buffers_);
    }
    if (!batch) throw nb::stop_iteration();
    return WriteTensors(*batch, Framework::kTorch);
  }

  const std::shared_ptr<BatchingQueue<TensorNest>>& queue() const { return queue_; }

 private:
  const int64_t batch_dim_;
  const bool check_inputs_;
  BufferPool buffers_;
  const std::shared_ptr<BatchingQueue<TensorNest>> queue_;
};

class PyDynamicBatcher {
 public:
  PyDynamicBatcher(int64_t batch_dim, int64_t minimum_batch_size, int64_t maximum_batch_size,
                   std::optional<double> timeout_ms, bool check_outputs)
      : batcher_(std::make_shared<DynamicBatcher>(
            DynamicBatcher::Options{batch_dim,
                                    BatchingOptions{minimum_batch_size, maximum_batch_size,
                                                    Timeout(timeout_ms), std::nullopt},
                                    check_outputs})) {}

  nb::object Compute(nb::handle inputs) {
    TensorNest item = ReadTensors(inputs, batcher_->buffers());
    TensorNest outputs;
    {
      BlockingCall no_gil;
      outputs = batcher_->Compute(std::move(item), CheckSignals);
    }
    return WriteTensors(outputs, Framework::kTorch);
  }

  std::unique_ptr<DynamicBatcher::Batch> Next() {
    std::unique_ptr<DynamicBatcher::Batch> batch;
    {
      BlockingCall no_gil;
      batch = batcher_->NextBatch(CheckSignals);
    }
    if (!batch) throw nb::stop_iteration();
    return batch;
  }

  const std::shared_ptr<DynamicBatcher>& batcher() const { return batcher_; }

 private:
  const std::shared_ptr<DynamicBatcher> batcher_;
};

nb::object GetInputs(DynamicBatcher::Batch& batch) {
  const TensorNest* inputs;
  {
    BlockingCall no_gil;
    inputs = &batch.GetInputs();
  }
  return WriteTensors(*inputs, Framework::kTorch);
}

void SetOutputs(DynamicBatcher::Batch& batch, nb::handle outputs) {
  TensorNest copy = CopyTensors(outputs, batch.buffers());
  BlockingCall no_gil;
  batch.SetOutputs(std::move(copy));
}

// Hands the pool's messages to logging.getLogger("libtorchbeast").
void Log(LogLevel level, const std::string& message) {
  GilLock gil;
  try {
    const char* method = level == LogLevel::kInfo      ? "info"
                         : level == LogLevel::kWarning ? "warning"
                                                       : "error";
    nb::module_::import_("logging").attr("getLogger")("libtorchbeast").attr(method)("%s", message);
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("libtorchbeast log");
  }
}

Tls MakeTls(const std::optional<std::vector<std::string>>& tls) {
  if (!tls) return {};
  if (tls->size() != 3) throw std::invalid_argument("tls must be (certificate, key, root), as PEM");
  return {(*tls)[0], (*tls)[1], (*tls)[2]};
}

using Counts = std::variant<int64_t, std::vector<int64_t>>;

std::unique_ptr<ActorPool> MakeActorPool(
    int64_t unroll_length, const PyBatchingQueue& queue, const PyDynamicBatcher& batcher,
    const std::vector<std::string>& addresses, nb::handle initial_agent_state,
    const Counts& environments_per_stream, bool newest_plane, double connect_timeout_s,
    int max_environment_failures, const std::optional<std::vector<std::string>>& tls,
    nb::object allocator, double step_timeout_s, double failure_window_s) {
  std::vector<StreamOptions> streams;
  ActorOptions options;
  options.unroll_length = unroll_length;
  const auto* counts = std::get_if<std::vector<int64_t>>(&environments_per_stream);
  if (counts && counts->size() != addresses.size()) {
    throw std::invalid_argument("environments_per_stream needs one number per address");
  }
  for (size_t i = 0; i < addresses.size(); ++i) {
    streams.push_back(
        {addresses[i], counts ? (*counts)[i] : std::get<int64_t>(environments_per_stream)});
  }
  BufferPool buffers;
  options.initial_agent_state = CopyTensors(initial_agent_state, buffers);
  options.newest_plane = newest_plane;
  options.connect_timeout = Milliseconds(1000 * connect_timeout_s, "connect_timeout_s");
  options.step_timeout = Milliseconds(1000 * step_timeout_s, "step_timeout_s");
  options.max_environment_failures = max_environment_failures;
  options.failure_window = Milliseconds(1000 * failure_window_s, "failure_window_s");
  options.tls = MakeTls(tls);
  return std::make_unique<ActorPool>(std::move(streams), std::move(options), queue.queue(),
                                     batcher.batcher(), Log, PythonAllocator(std::move(allocator)));
}

// Holds the environment factory where the garbage collector can see it: a factory that refers to
// the server, as a module's global function does, would otherwise keep both for ever.
class PyServer {
 public:
  PyServer(nb::object env_init, std::string address, int32_t task,
           const std::optional<std::vector<std::string>>& tls, int64_t max_environments,
           nb::object env_class)
      : env_init_(env_init.is_none() ? std::move(env_class) : std::move(env_init)),
        server_([this] { return MakeEnvironment(); },
                ServerOptions{std::move(address), task, MakeTls(tls), max_environments}) {
    if (!PyCallable_Check(env_init_.ptr())) {
      throw nb::type_error("env_init must be callable: it makes one environment a call");
    }
  }

  EnvServer& server() { return server_; }

  static int Traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<PyServer>(self)->env_init_.ptr());
    return 0;
  }

  static int Clear(PyObject* self) {
    nb::inst_ptr<PyServer>(self)->env_init_.reset();
    return 0;
  }

 private:
  std::unique_ptr<Environment> MakeEnvironment() {
    GilLock gil;
    // The reference keeps the factory while it runs.
    const nb::object env_init = env_init_;
    return MakePythonEnvironment(env_init);
  }

  nb::object env_init_;
  EnvServer server_;
};

PyType_Slot kServerSlots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(&PyServer::Traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(&PyServer::Clear)},
    {0, nullptr},
};

using NoGil = nb::call_guard<BlockingCall>;

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
      .def("set_outputs", &SetOutputs, nb::arg("outputs"))
      .def("size", &DynamicBatcher::Batch::size);

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

void BindActorPool(nb::module_& m) {
  nb::class_<ActorPool>(m, "ActorPool")
      .def(nb::new_(&MakeActorPool), nb::arg("unroll_length"), nb::arg("learner_queue"),
           nb::arg("inference_batcher"), nb::arg("env_server_addresses"),
           nb::arg("initial_agent_state"), nb::arg("environments_per_stream") = 1,
           nb::arg("newest_plane") = true, nb::arg("connect_timeout_s") = 600.0,
           nb::arg("max_environment_failures") = 3, nb::arg("tls") = nb::none(),
           nb::arg("allocator") = nb::none(), nb::arg("step_timeout_s") = 300.0,
           nb::arg("failure_window_s") = 600.0)
      .def(
          "run", [](ActorPool& pool) { pool.Run(CheckSignals); }, NoGil())
      .def("count", &ActorPool::count);
}

void BindServer(nb::module_& m) {
  nb::class_<PyServer>(m, "Server", nb::type_slots(kServerSlots))
      .def(nb::init<nb::object, std::string, int32_t,
                    const std::optional<std::vector<std::string>>&, int64_t, nb::object>(),
           nb::arg("env_init") = nb::none(), nb::arg("server_address") = "unix:/tmp/polybeast",
           nb::arg("task") = 0, nb::arg("tls") = nb::none(), nb::arg("max_environments") = 1024,
           nb::arg("env_class") = nb::none())
      .def(
          "run", [](PyServer& server) { server.server().Run(CheckSignals); }, NoGil())
      .def(
          "stop", [](PyServer& server) { server.server().Stop(); }, NoGil());
}

}  // namespace

}  // namespace torchbeast

NB_MODULE(_C, m) {
  // At exit, threads inside run() still hold what they use; that is no leak.
  nb::set_leak_warnings(false);
  nb::exception<torchbeast::ClosedBatchingQueue>(m, "ClosedBatchingQueue", PyExc_RuntimeError);
  nb::exception<torchbeast::AsyncError>(m, "AsyncError", PyExc_RuntimeError);
  nb::exception<nest::NestError>(m, "NestError", PyExc_ValueError);
  torchbeast::BindExit(m);
  torchbeast::BindQueues(m);
  torchbeast::BindActorPool(m);
  torchbeast::BindServer(m);
}
