#include "python/py_environment.h"

#include <vector>

#include "python/py_tensor.h"

namespace nb = nanobind;

namespace torchbeast {

namespace {

// A status message travels in HTTP/2 headers, which gRPC limits to 8 KB in all.
constexpr size_t kMaxTracebackBytes = 4000;

// Runs `function` with the GIL. A Python exception becomes a std::runtime_error with its traceback,
// the last part of it if it is long.
template <typename Function>
void WithPython(Function&& function) {
  nb::gil_scoped_acquire gil;
  std::string text;
  try {
    function();
    return;
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) {  // KeyboardInterrupt, SystemExit.
      throw Interrupted{std::current_exception()};
    }
    text = error.what();
  }
  if (text.size() > kMaxTracebackBytes)
    text = "..." + text.substr(text.size() - kMaxTracebackBytes);
  throw std::runtime_error(text);
}

struct Environment {
  nb::object reset;
  nb::object step;
  nb::object close;
  int32_t episode_step = 0;
  // In double: a float loses unit rewards beyond 2^24.
  double episode_return = 0.0;
};

class PythonEnvironments final : public EnvironmentBatch {
 public:
  PythonEnvironments(nb::object env_init, int64_t num_environments) {
    for (int64_t i = 0; i < num_environments; ++i) {
      nb::object env = env_init();
      environments_.push_back(
          {env.attr("reset"), env.attr("step"), nb::getattr(env, "close", nb::none())});
    }
  }

  ~PythonEnvironments() override {
    if (!nb::is_alive()) return;
    nb::gil_scoped_acquire gil;
    for (Environment& environment : environments_) {
      try {
        if (!environment.close.is_none()) environment.close();
      } catch (nb::python_error& error) {
        error.discard_as_unraisable(environment.close);
      }
    }
    environments_.clear();
  }

  void Reset(StepEncoder* encoder, rpcenv::Reply* reply) override {
    WithPython([&] {
      for (Environment& environment : environments_) {
        encoder->Append(ResetOne(environment), /*episode_start=*/true, reply);
        AppendResult(environment, 0.0F, false, false, false, reply);
      }
    });
  }

  void Step(const Actions& actions, StepEncoder* encoder, rpcenv::Reply* reply) override {
    WithPython([&] {
      const int64_t action_bytes = actions.spec.NumBytes();
      for (size_t e = 0; e < environments_.size(); ++e) {
        StepOne(environments_[e], ReadAction(actions.spec, actions.data + e * action_bytes),
                encoder, reply);
      }
    });
  }

 private:
  // An integer of one element as int, any other array as a NumPy array.
  nb::object ReadAction(const LeafSpec& spec, const std::byte* data) {
    const bool single = spec.shape.NumElements() == 1;
    if (single && spec.dtype == DType::kInt64) {
      int64_t value;
      std::memcpy(&value, data, sizeof(value));
      return nb::int_(value);
    }
    Tensor action = buffers_.Empty(spec.dtype, spec.shape);
    std::memcpy(action.data, data, action.NumBytes());
    nb::object array = WriteTensor(action, Framework::kNumpy);
    return single && spec.dtype == DType::kInt32 ? nb::int_(array) : array;
  }

  TensorNest ResetOne(Environment& environment) {
    nb::object result = environment.reset();
    // Gymnasium's pair: nothing else is a tuple of two whose second is a dict.
    if (nb::isinstance<nb::tuple>(result) && nb::len(result) == 2 &&
        nb::isinstance<nb::dict>(result[1])) {
      result = nb::object(result[0]);
    }
    return ReadTensors(result, buffers_);
  }

  void StepOne(Environment& environment, nb::object action, StepEncoder* encoder,
               rpcenv::Reply* reply) {
    nb::object result = environment.step(action);
    if (!nb::isinstance<nb::tuple>(result) || (nb::len(result) != 5 && nb::len(result) != 4)) {
      throw std::runtime_error(
          "Environment's step() must return a tuple of 5 (or, old kind, of 4)");
    }
    const bool gymnasium = nb::len(result) == 5;
    const float reward = nb::cast<float>(nb::float_(result[1]));
    bool terminated = IsTrue(result[2]);
    bool truncated = gymnasium && IsTrue(result[3]);
    const nb::object info = result[gymnasium ? 4 : 3];
    if (!gymnasium && terminated && IsTrue(Lookup(info, "TimeLimit.truncated"))) {
      terminated = false;
      truncated = true;
    }
    ++environment.episode_step;
    environment.episode_return += reward;
    const bool done = terminated || truncated;
    if (!done) {
      encoder->Append(ReadTensors(result[0], buffers_), /*episode_start=*/false, reply);
      AppendResult(environment, reward, false, false, false, reply);
      return;
    }
    const nb::object flag = Lookup(info, "game_over");
    const bool game_over = flag.is_none() || IsTrue(flag);
    encoder->Append(ResetOne(environment), /*episode_start=*/true, reply);
    AppendResult(environment, reward, terminated, truncated, game_over, reply);
    if (game_over) {
      environment.episode_step = 0;
      environment.episode_return = 0.0;
    }
  }

  static bool IsTrue(nb::handle value) {
    const int truth = PyObject_IsTrue(value.ptr());
    if (truth < 0) nb::raise_python_error();
    return truth != 0;
  }

  // None if `info` is no dict or has no such key.
  static nb::object Lookup(nb::handle info, const char* key) {
    if (!nb::isinstance<nb::dict>(info)) return nb::none();
    PyObject* value = PyDict_GetItemString(info.ptr(), key);
    return value ? nb::borrow(value) : nb::none();
  }

  static void AppendResult(const Environment& environment, float reward, bool terminated,
                           bool truncated, bool game_over, rpcenv::Reply* reply) {
    reply->add_reward(reward);
    reply->add_terminated(terminated);
    reply->add_truncated(truncated);
    reply->add_game_over(game_over);
    reply->add_episode_step(environment.episode_step);
    reply->add_episode_return(static_cast<float>(environment.episode_return));
  }

  std::vector<Environment> environments_;
  BufferPool buffers_;
};

}  // namespace

std::unique_ptr<EnvironmentBatch> MakePythonEnvironments(nb::object env_init,
                                                         int64_t num_environments) {
  std::unique_ptr<EnvironmentBatch> environments;
  WithPython([&] {
    environments = std::make_unique<PythonEnvironments>(std::move(env_init), num_environments);
  });
  return environments;
}

}  // namespace torchbeast
