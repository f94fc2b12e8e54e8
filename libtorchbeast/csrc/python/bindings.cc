// The Python module: the public names, how arguments are read, and who holds the GIL.
//
// Rule: no call waits or talks to the network with the GIL held, and no thread asks for the GIL
// while it holds a lock of the library.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "pool/actor_pool.h"
#include "python/py_environment.h"
#include "python/py_gil.h"
#include "python/py_kernels.h"
#include "python/py_queues.h"
#include "python/py_sizes.h"
#include "python/py_tensor.h"
#include "server/env_server.h"
#include "wire/transport.h"

namespace nb = nanobind;

namespace torchbeast {

namespace {

// Bytes that a server may have sent, as text.
nb::object Text(const std::string& bytes) {
  return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()),
                                        "backslashreplace"));
}

// Hands the pool's messages to logging.getLogger("libtorchbeast").
void Log(LogLevel level, const std::string& message) {
  const char* method = level == LogLevel::kWarning ? "warning" : "error";
  WithGil([&]() {
    try {
      nb::module_::import_("logging")
          .attr("getLogger")("libtorchbeast")
          .attr(method)("%s", Text(message));
    } catch (nb::python_error& error) {
      Discard(error, "libtorchbeast log");
    }
  });
}

Tls MakeTls(const std::optional<std::vector<std::string>>& tls,
            const std::string& server_name = "") {
  if (!tls && !server_name.empty()) {
    throw std::invalid_argument("tls_server_name needs tls");
  }
  if (!tls) return {};
  // gRPC takes an empty root for the system's, and an empty certificate for none.
  const bool has_empty =
      std::any_of(tls->begin(), tls->end(), [](const std::string& pem) { return pem.empty(); });
  if (tls->size() != 3 || has_empty) {
    throw std::invalid_argument("tls must be (certificate, key, root), as PEM");
  }
  return {(*tls)[0], (*tls)[1], (*tls)[2], server_name};
}

using Counts = std::variant<int64_t, std::vector<int64_t>>;

std::unique_ptr<ActorPool> MakeActorPool(int64_t unroll_length, const PyBatchingQueue& queue,
                                         const PyDynamicBatcher& batcher,
                                         const std::vector<std::string>& addresses,
                                         nb::handle initial_agent_state,
                                         const Counts& environments_per_stream,
                                         double connect_timeout_s, int64_t max_environment_failures,
                                         const std::optional<std::vector<std::string>>& tls,
                                         double step_timeout_s, const std::string& tls_server_name,
                                         int num_threads, std::vector<std::string> environments) {
  std::vector<StreamOptions> streams;
  ActorOptions options;
  options.unroll_length = CheckSize("unroll_length", unroll_length, 1, kMaxUnrollLength);
  if (queue.batch_dim() != 1) {
    throw std::invalid_argument("The learner queue must have batch_dim 1: rollouts are [T, B]");
  }
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
  options.connect_timeout = Milliseconds(1000 * connect_timeout_s, "connect_timeout_s");
  options.step_timeout = Milliseconds(1000 * step_timeout_s, "step_timeout_s");
  options.max_environment_failures = static_cast<int>(CheckSize(
      "max_environment_failures", max_environment_failures, 1, std::numeric_limits<int>::max()));
  options.tls = MakeTls(tls, tls_server_name);
  options.num_threads = num_threads;
  options.environments = std::move(environments);
  return std::make_unique<ActorPool>(std::move(streams), std::move(options), queue.queue(),
                                     batcher.batcher(), Log);
}

// Holds the environment factory where the garbage collector can see it: a factory that refers to
// the server, as a module's global function does, would otherwise keep both for ever.
class PyServer {
 public:
  PyServer(nb::object env_init, std::string address, int32_t task,
           const std::optional<std::vector<std::string>>& tls, nb::object env_class,
           std::string environment)
      : env_init_(env_init.is_none() ? std::move(env_class) : std::move(env_init)),
        server_([this] { return MakeEnvironment(); },
                ServerOptions{std::move(address), task, std::move(environment), MakeTls(tls)}) {
    if (env_class.is_valid() && !env_class.is_none()) {
      throw nb::type_error("env_init and env_class are two names of one argument: give one");
    }
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
    if (nb::inst_ready(self)) nb::inst_ptr<PyServer>(self)->env_init_.reset();
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

void BindActorPool(nb::module_& m) {
  nb::class_<ActorPool>(m, "ActorPool")
      .def(nb::new_(&MakeActorPool), nb::arg("unroll_length"), nb::arg("learner_queue"),
           nb::arg("inference_batcher"), nb::arg("env_server_addresses"),
           nb::arg("initial_agent_state"), nb::arg("environments_per_stream") = 1,
           nb::arg("connect_timeout_s") = 600.0, nb::arg("max_environment_failures") = 5,
           nb::arg("tls") = nb::none(), nb::arg("step_timeout_s") = 300.0,
           nb::arg("tls_server_name") = "", nb::arg("num_threads") = 1,
           nb::arg("environments") = std::vector<std::string>())
      .def(
          "run", [](ActorPool& pool) { pool.Run(CheckSignals); }, NoGil())
      .def("set_address", &ActorPool::SetAddress, nb::arg("stream"), nb::arg("address"), NoGil())
      .def("count", &ActorPool::count);
}

void BindServer(nb::module_& m) {
  nb::class_<PyServer>(m, "Server", nb::type_slots(kServerSlots))
      .def(nb::init<nb::object, std::string, int32_t,
                    const std::optional<std::vector<std::string>>&, nb::object, std::string>(),
           nb::arg("env_init") = nb::none(), nb::arg("server_address") = "unix:/tmp/polybeast",
           nb::arg("task") = 0, nb::arg("tls") = nb::none(), nb::arg("env_class") = nb::none(),
           nb::arg("environment") = "")
      .def(
          "run", [](PyServer& server) { server.server().Run(CheckSignals); }, NoGil())
      .def(
          "stop", [](PyServer& server) { server.server().Stop(); }, NoGil())
      .def_prop_ro("port", [](PyServer& server) { return server.server().port(); });
}

}  // namespace

}  // namespace torchbeast

NB_MODULE(_C, m) {
  // At exit, threads inside run() still hold what they use; that is no leak.
  nb::set_leak_warnings(false);
  nb::exception<torchbeast::ClosedBatchingQueue>(m, "ClosedBatchingQueue", PyExc_RuntimeError);
  nb::exception<torchbeast::AsyncError>(m, "AsyncError", PyExc_RuntimeError);
  nb::exception<nest::NestError>(m, "NestError", PyExc_ValueError);
  m.def("is_local", &torchbeast::IsLocal, nb::arg("address"));
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const torchbeast::ServerFailure& failure) {
      PyErr_SetObject(PyExc_RuntimeError, torchbeast::Text(failure.what()).ptr());
    }
  });
  torchbeast::BindExit(m);
  torchbeast::BindQueues(m);
  torchbeast::BindActorPool(m);
  torchbeast::BindServer(m);
  torchbeast::BindKernels(m);
}
