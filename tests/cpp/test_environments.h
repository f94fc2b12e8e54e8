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

#include "env_server.h"
#include "tensor.h"
#include "wire.h"

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
class CountingEnvironments final : public EnvironmentBatch {
 public:
  // Called before each step with the number of steps taken; may throw or wait.
  using OnStep = std::function<void(int step)>;

  CountingEnvironments(int64_t num_environments, OnStep on_step, std::atomic<int>* num_alive)
      : num_environments_(num_environments), on_step_(std::move(on_step)), num_alive_(num_alive) {
    *num_alive_ += static_cast<int>(num_environments);
  }
  ~CountingEnvironments() override { *num_alive_ -= static_cast<int>(num_environments_); }

  void Reset(StepEncoder* encoder, rpcenv::Reply* reply) override {
    for (int64_t e = 0; e < num_environments_; ++e) Add(0.0F, encoder, reply);
  }

  void Step(const Actions& actions, StepEncoder* encoder, rpcenv::Reply* reply) override {
    if (on_step_) on_step_(step_);
    ++step_;
    for (int64_t e = 0; e < num_environments_; ++e) {
      int64_t action;
      std::memcpy(&action, actions.data + e * sizeof(action), sizeof(action));
      Add(static_cast<float>(action), encoder, reply);
    }
  }

 private:
  void Add(float reward, StepEncoder* encoder, rpcenv::Reply* reply) {
    Tensor observation = buffers_.Empty(DType::kInt32, {1});
    const int32_t value = step_;
    std::memcpy(observation.data, &value, sizeof(value));
    encoder->Append(observation, /*episode_start=*/false, reply);
    const bool over = step_ > 0 && step_ % 4 == 0;
    reply->add_reward(reward);
    reply->add_terminated(over);
    reply->add_truncated(false);
    reply->add_game_over(over);
    reply->add_episode_step(step_);
    reply->add_episode_return(0.0F);
  }

  const int64_t num_environments_;
  const OnStep on_step_;
  std::atomic<int>* const num_alive_;
  int step_ = 0;
  BufferPool buffers_;
};

// A server of counting environments, from construction to destruction.
class CountingServer {
 public:
  explicit CountingServer(std::string address, CountingEnvironments::OnStep on_step = {},
                          int32_t task = 0)
      : server_(
            [this, on_step](int64_t num_environments) {
              return std::make_unique<CountingEnvironments>(num_environments, on_step, &num_alive_);
            },
            std::move(address), task, Tls{}),
        thread_([this] { server_.Run({}); }) {
    const std::string path = server_.address().substr(std::strlen("unix:"));
    WaitFor([&] { return access(path.c_str(), F_OK) == 0; });
  }
  ~CountingServer() {
    server_.Stop();
    thread_.join();
  }

  EnvServer& server() { return server_; }
  // Environments that exist.
  int num_alive() const { return num_alive_; }

 private:
  std::atomic<int> num_alive_{0};
  EnvServer server_;
  std::thread thread_;
};

}  // namespace torchbeast
