// What the tests of streams share: a socket in a directory of its own, environments that count, and
// a server of them in a thread.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "core/tensor.h"
#include "server/env_server.h"
#include "server/environment_batch.h"
#include "wire/wire.h"

namespace torchbeast {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "tb.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::filesystem::path File(const std::string& name) const { return path_ / name; }
  std::string Address(const std::string& name = "s") const { return "unix:" + File(name).string(); }

 private:
  std::filesystem::path path_;
};

// Waits until `condition()`; fails the test after a time that only a fault can take.
inline void WaitFor(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("waited in vain");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Observation: one int32, the number of steps taken. Reward: the action. Episodes of 4 steps.
class CountingEnvironment final : public Environment {
 public:
  // Called before each step with the number of steps taken; may throw or wait.
  using OnStep = std::function<void(int step)>;

  CountingEnvironment(OnStep on_step, std::atomic<int>* num_alive)
      : on_step_(std::move(on_step)), num_alive_(num_alive) {
    ++*num_alive_;
  }
  ~CountingEnvironment() override { --*num_alive_; }

  TensorNest Reset() override { return Observe(); }

  Result Step(int64_t action) override {
    if (on_step_) on_step_(step_);
    ++step_;
    Result result;
    result.reward = static_cast<double>(action);
    result.terminated = step_ % 4 == 0;
    result.observation = Observe();
    return result;
  }

 private:
  Tensor Observe() {
    Tensor observation = buffers_.Empty(DType::kInt32, {1});
    const int32_t value = step_;
    std::memcpy(observation.data, &value, sizeof(value));
    return observation;
  }

  const OnStep on_step_;
  std::atomic<int>* const num_alive_;
  int step_ = 0;
  BufferPool buffers_;
};

// A server at a socket, from construction to destruction.
class TestServer {
 public:
  TestServer(EnvironmentFactory factory, const ServerOptions& options)
      : server_(std::move(factory), options), thread_([this] { server_.Run({}); }) {
    const std::string path = options.address.substr(std::strlen("unix:"));
    WaitFor([&] { return access(path.c_str(), F_OK) == 0; });
  }
  ~TestServer() {
    server_.Stop();
    thread_.join();
  }

  EnvServer& server() { return server_; }

 private:
  EnvServer server_;
  std::thread thread_;
};

// A server of counting environments.
class CountingServer {
 public:
  explicit CountingServer(const std::string& address, CountingEnvironment::OnStep on_step = {})
      : server_(
            [this, on_step] { return std::make_unique<CountingEnvironment>(on_step, &num_alive_); },
            ServerOptions{address}) {}

  EnvServer& server() { return server_.server(); }
  // Environments that exist.
  int num_alive() const { return num_alive_; }

 private:
  std::atomic<int> num_alive_{0};
  TestServer server_;
};

}  // namespace torchbeast
