// Steps environments on many servers with one policy and hands whole rollouts to a learner.
//
// Some threads handle the events of the streams, each those of its own streams: on the way of a
// step they share no lock but the batcher's. One more waits for room in the learner queue, and the
// caller of Run() checks for the end. Inference threads are the batcher's users.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/sync.h"
#include "core/tensor.h"
#include "pool/actor.h"
#include "pool/batching_queue.h"
#include "pool/dynamic_batcher.h"

namespace torchbeast {

class ActorPool final : private Actor::Listener {
 public:
  // std::invalid_argument for options that make no sense.
  ActorPool(std::vector<StreamOptions> streams, ActorOptions options,
            std::shared_ptr<BatchingQueue<TensorNest>> learner_queue,
            std::shared_ptr<DynamicBatcher> inference_batcher, LogFunction log);

  // Runs all streams until the learner queue or the batcher is closed, then returns; it may be
  // called once. A server that dies is reconnected to, its partial rollouts dropped; it may stay
  // away while others answer. The first error of any stream ends all of them and is thrown here, as
  // is what `poll` throws. `log` is called by this thread.
  void Run(const Poll& poll) TB_EXCLUDES(mutex_);
  // Moves stream `stream` to the server at `address`, see Actor::SetAddress(). Before, during and
  // after Run(), from any thread. std::out_of_range if there is no such stream,
  // std::invalid_argument for an address that the constructor would refuse.
  void SetAddress(size_t stream, const std::string& address);
  // Agent steps handed to the learner so far, all environments together.
  int64_t count() const { return count_; }

 private:
  void Deliver(std::shared_ptr<Actor> actor, std::vector<TensorNest> rollouts) override
      TB_EXCLUDES(mutex_);
  bool HasProgress() const override;
  void Fail(std::exception_ptr error) override TB_EXCLUDES(mutex_);
  void Log(LogLevel level, const std::string& message) override TB_EXCLUDES(mutex_);

  // Hands over what was logged. To be called without locks: `log` may need others.
  void WriteLog() TB_EXCLUDES(mutex_);
  // Waits for the end.
  void Watch(const Poll& poll) TB_EXCLUDES(mutex_);
  // A thread that handles the events of the streams of `queue`.
  void EventLoop(grpc::CompletionQueue* queue) TB_EXCLUDES(mutex_);
  // The thread that fills the learner queue.
  void DeliveryLoop() TB_EXCLUDES(mutex_);
  // Starts inference for actors. To be called without locks.
  void Submit(std::vector<Actor::Submission> submissions) TB_EXCLUDES(mutex_);
  bool IsOver() const;
  // std::invalid_argument for an address that no stream may have.
  void CheckAddress(const std::string& address) const;

  const ActorOptions options_;
  const std::shared_ptr<BatchingQueue<TensorNest>> learner_queue_;
  const std::shared_ptr<DynamicBatcher> inference_batcher_;
  const LogFunction log_;
  // By event thread.
  std::vector<std::unique_ptr<grpc::CompletionQueue>> completion_queues_;
  // By stream.
  std::vector<std::shared_ptr<Actor>> actors_;
  std::atomic<int64_t> count_{0};
  std::atomic<bool> stopped_{false};

  Mutex mutex_;
  CondVar failed_;
  std::atomic<bool> started_{false};
  std::exception_ptr first_error_ TB_GUARDED_BY(mutex_);
  std::vector<std::pair<LogLevel, std::string>> messages_ TB_GUARDED_BY(mutex_);
  CondVar has_deliveries_;
  std::deque<std::pair<std::shared_ptr<Actor>, std::vector<TensorNest>>> deliveries_
      TB_GUARDED_BY(mutex_);
};

}  // namespace torchbeast
