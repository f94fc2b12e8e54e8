#include "python/py_gil.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

namespace nb = nanobind;

namespace torchbeast {

namespace {

constexpr std::chrono::seconds kExitTimeout{3};

// Python is about to exit: calls that wait are to end.
std::atomic<bool> exiting{false};
// They had their time: from now on the GIL is the main thread's alone. The stable ABI has nothing
// that tells when Python itself begins to end.
std::atomic<bool> exited{false};
// The thread that ends the interpreter. Written before `exited`.
std::thread::id main_thread;
std::atomic<int> num_blocking_calls{0};

struct InterpreterExit : std::exception {};

// Runs in the main thread, while Python still works as usual.
void EndBlockingCalls() {
  exiting = true;
  nb::gil_scoped_release no_gil;
  const auto deadline = std::chrono::steady_clock::now() + kExitTimeout;
  while (num_blocking_calls > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  main_thread = std::this_thread::get_id();
  exited = true;
}

}  // namespace

void StopForEver() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

bool TooLateForGil() { return exited && std::this_thread::get_id() != main_thread; }

GilLock::GilLock() {
  if (TooLateForGil()) StopForEver();
  state_ = PyGILState_Ensure();
}

GilLock::~GilLock() { PyGILState_Release(state_); }

BlockingCall::BlockingCall() {
  ++num_blocking_calls;
  state_ = PyEval_SaveThread();
}

BlockingCall::~BlockingCall() {
  if (TooLateForGil()) StopForEver();
  PyEval_RestoreThread(state_);
  --num_blocking_calls;
}

void Discard(nb::python_error& error, const char* where) {
  if (error.matches(PyExc_KeyboardInterrupt)) {
    PyErr_SetInterrupt();
  } else {
    error.discard_as_unraisable(where);
  }
}

void CheckSignals() {
  if (exiting) throw InterpreterExit();
  WithGil([] {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
}

void BindExit(nb::module_& m) {
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const InterpreterExit&) {
      // Ends a thread without a traceback.
      PyErr_SetNone(PyExc_SystemExit);
    }
  });
  m.def("_end_blocking_calls", &EndBlockingCalls);
  nb::module_::import_("atexit").attr("register")(m.attr("_end_blocking_calls"));
}

}  // namespace torchbeast
