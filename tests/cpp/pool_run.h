// An actor pool with its inference and the thread that runs it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pool/actor_pool.h"
#include "test_environments.h"

namespace torchbeast {

constexpr int kUnrollLength = 3;

// A pool whose inference returns the call's number as action.
class PoolRun {
 public:
  explicit PoolRun(std::vector<StreamOptions> streams, ActorOptions options = {},
                   std::optional<int64_t> queue_size = std::nullopt)
      : queue(std::make_shared<BatchingQueue<TensorNest>>(
            BatchingOptions{1, 1, std::nullopt, queue_size})),
        batcher(std::make_shared<DynamicBatcher>(
            DynamicBatcher::Options{1, {1, 64, std::chrono::milliseconds(5), {}}, true})),
        pool(std::move(streams), WithDefaults(std::move(options)), queue, batcher,
             [](LogLevel, const std::string&) {}),
        inference_([this] { Infer(); }),
        runner_([this] {
          try {
            pool.Run({});
          } catch (const std::exception& e) {
            MutexLock lock(mutex_);
            error_ = e.what();
          }
          ended_ = true;
          CloseOnce(*queue);  // Else whoever waits for a rollout hangs.
        }) {}
  ~PoolRun() { Close(); }

  void Close() {
    CloseOnce(*queue);
    CloseOnce(*batcher);
    if (inference_.joinable()) inference_.join();
    if (runner_.joinable()) runner_.join();
  }
  // The next rollout: ((environment outputs, agent outputs), initial state).
  TensorNest Next() { return queue->DequeueMany().at(0); }
  std::string WaitForError() {
    WaitFor([this] { return ended_.load(); });
    return error();
  }
  std::string error() {
    MutexLock lock(mutex_);
    return error_;
  }

  const std::shared_ptr<BatchingQueue<TensorNest>> queue;
  const std::shared_ptr<DynamicBatcher> batcher;
  ActorPool pool;

 private:
  // Somebody else may close it at the same time.
  template <typename Closable>
  static void CloseOnce(Closable& closable) {
    try {
      closable.Close();
    } catch (const std::runtime_error&) {
    }
  }

  static ActorOptions WithDefaults(ActorOptions options) {
    options.unroll_length = kUnrollLength;
    return options;
  }

  void Infer() {
    BufferPool buffers;
    for (int64_t call = 1; auto batch = batcher->NextBatch(); ++call) {
      batch->GetInputs();
      Tensor action = buffers.Empty(DType::kInt64, {1, batch->size(), 1});
      for (int64_t i = 0; i < batch->size(); ++i) std::memcpy(action.data + 8 * i, &call, 8);
      batch->SetOutputs(TensorNest(TensorNest::Sequence{TensorNest(TensorNest::Sequence{action}),
                                                        TensorNest(TensorNest::Sequence{})}));
    }
  }

  Mutex mutex_;
  std::string error_ TB_GUARDED_BY(mutex_);
  std::atomic<bool> ended_{false};
  std::thread inference_;
  std::thread runner_;
};

}  // namespace torchbeast
