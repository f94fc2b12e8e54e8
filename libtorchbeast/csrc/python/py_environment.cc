#include "python/py_environment.h"

#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "python/py_gil.h"
#include "python/py_tensor.h"

namespace nb = nanobind;

namespace torchbeast {

namespace {

// The traceback as text. Whatever fails on the way, the exception's type is named.
std::string FormatTraceback(const nb::python_error& error) {
  try {
    // The value has the traceback, if there is one: what C code raised has none.
    const nb::object lines =
        nb::module_::import_("traceback").attr("format_exception")(error.value());
    const nb::object text = nb::str("").attr("join")(lines);
    const nb::bytes encoded(text.attr("encode")("utf-8", "backslashreplace"));
    return std::string(encoded.c_str(), encoded.size());
  } catch (nb::python_error& inner) {
    Discard(inner, "libtorchbeast traceback");
    return nb::type_name(error.type()).c_str();
  }
}

// Runs `function` with the GIL. A Python exception becomes a std::runtime_error with its traceback;
// KeyboardInterrupt and SystemExit become Interrupted.
template <typename Function>
auto WithPython(Function&& function) -> decltype(function()) {
  return WithGil([&]() -> decltype(function()) {
    try {
      return function();
    } catch (const nb::python_error& error) {
      if (error.matches(PyExc_KeyboardInterrupt) || error.matches(PyExc_SystemExit)) {
        throw Interrupted{std::current_exception()};
      }
      throw std::runtime_error(FormatTraceback(error));
    }
  });
}

// What Python's ascii() returns.
std::string Represent(nb::handle value) {
  const nb::object text = nb::steal(PyObject_ASCII(value.ptr()));
  if (!text.is_valid()) nb::raise_python_error();
  return nb::cast<std::string>(text);
}

bool IsTrue(nb::handle value) {
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) nb::raise_python_error();
  return truth != 0;
}

// None if `info` is no dict or has no such key.
nb::object Lookup(nb::handle info, const char* key) {
  if (!nb::isinstance<nb::dict>(info)) return nb::none();
  PyObject* value = PyDict_GetItemString(info.ptr(), key);
  return value ? nb::borrow(value) : nb::none();
}

double ReadReward(nb::handle value) {
  const double reward = PyFloat_AsDouble(value.ptr());
  if (reward == -1.0 && PyErr_Occurred() != nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) nb::raise_python_error();
    PyErr_Clear();
    throw std::runtime_error("its reward is " + Represent(value) + ", which is no number");
  }
  return reward;
}

// std::runtime_error for an integer: in TorchBeast's multi-task extension step() returned
// (observation, reward, done, task, info), where every task but the first would look like a time
// limit.
bool ReadTruncated(nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) return value.is(nb::handle(Py_True));
  // NumPy's integers are some, its bool is none.
  if (PyIndex_Check(value.ptr())) {
    throw std::runtime_error("its step() returned " + Represent(value) +
                             " for `truncated`, which is no bool; a game's index belongs into "
                             "Server(task=...)");
  }
  return IsTrue(value);
}

class PythonEnvironment final : public Environment {
 public:
  explicit PythonEnvironment(nb::object env) : env_(std::move(env)) {
    reset_ = env_.attr("reset");
    step_ = env_.attr("step");
  }

  ~PythonEnvironment() override {
    if (!nb::is_alive()) {  // Nobody may count references any more.
      env_.release();
      reset_.release();
      step_.release();
      return;
    }
    WithGil([this] {
      Close();
      env_.reset();
      reset_.reset();
      step_.reset();
    });
  }

  TensorNest Reset() override {
    return WithPython([&] {
      nb::object result = reset_();
      // Gymnasium's pair. An old environment whose observation is such a pair is taken for it, too.
      if (nb::isinstance<nb::tuple>(result) && nb::len(result) == 2 &&
          nb::isinstance<nb::dict>(result[1])) {
        result = nb::object(result[0]);
      }
      return ReadTensors(result);
    });
  }

  Result Step(int64_t action) override {
    return WithPython([&] { return StepWithGil(action); });
  }

 private:
  // What its close() raises is printed, and no failure.
  void Close() {
    try {
      const nb::object close = nb::getattr(env_, "close", nb::none());
      if (!close.is_none()) close();
    } catch (nb::python_error& error) {
      Discard(error, "an environment's close()");
    }
  }

  Result StepWithGil(int64_t action) {
    const nb::object returned = step_(action);
    if (!nb::isinstance<nb::tuple>(returned) ||
        (nb::len(returned) != 5 && nb::len(returned) != 4)) {
      throw std::runtime_error(
          "Environment's step() must return a tuple of 5 (or, old kind, of 4)");
    }
    const bool gymnasium = nb::len(returned) == 5;
    Result result;
    result.reward = ReadReward(nb::object(returned[1]));
    result.terminated = IsTrue(nb::object(returned[2]));
    result.truncated = gymnasium && ReadTruncated(nb::object(returned[3]));
    const nb::object info = returned[gymnasium ? 4 : 3];
    if (!gymnasium && result.terminated && IsTrue(Lookup(info, "TimeLimit.truncated"))) {
      result.terminated = false;
      result.truncated = true;
    }
    if (result.terminated || result.truncated) {
      const nb::object flag = Lookup(info, "game_over");
      result.game_over = flag.is_none() || IsTrue(flag);
    }
    if (!result.terminated) result.observation = ReadTensors(nb::object(returned[0]));
    return result;
  }

  nb::object env_;
  nb::object reset_;
  nb::object step_;
};

}  // namespace

std::unique_ptr<Environment> MakePythonEnvironment(nb::handle env_init) {
  return WithPython([&]() -> std::unique_ptr<Environment> {
    return std::make_unique<PythonEnvironment>(env_init());
  });
}

}  // namespace torchbeast
