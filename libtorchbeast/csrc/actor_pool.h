// Steps environments on many servers with one policy and hands whole rollouts to a learner.
//
// One thread per stream. A stream carries one or several environments: every step their observations
// go to the inference batcher, the actions come back to the server, and after `unroll_length` steps
// each environment's rollout goes into the learner queue.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "batching_queue.h"
#include "dynamic_batcher.h"
#include "env_stream.h"
#include "rollout.h"

namespace torchbeast {

enum class LogLevel { kInfo, kWarning, kError };
using LogFunction = std::function<void(LogLevel, const std::string&)>;

class ActorPool {
 public:
  struct Stream {
    std::string address;
    int64_t num_environments = 1;
  };
  struct Options {
    int64_t unroll_length = 0;
    std::vector<Stream> streams;
    // Of one environment: each leaf with batch dimension 1 at axis 1. May have no leaves.
    TensorNest initial_agent_state;
    bool newest_plane = true;
    // How long a stream looks for its server, at the start and after losing it.
    std::chrono::milliseconds connect_timeout{600'000};
    // How often in succession, without a whole rollout in between, a stream's environments may
    // raise before the pool gives up.
    int max_environment_failures = 3;
    Tls tls;
    // Where rollouts are allocated; empty for ordinary memory.
    BufferPool::Allocator allocator;
  };

  // std::invalid_argument for options that make no sense.
  ActorPool(Options options, std::shared_ptr<BatchingQueue<TensorNest>> learner_queue,
            std::shared_ptr<DynamicBatcher> inference_batcher, LogFunction log);

  // Runs all streams until the learner queue or the batcher is closed, then returns; it may be
  // called once. A server that dies is reconnected to, its partial rollout dropped. The first error
  // of any stream ends all of them and is thrown here, as is what `poll` throws.
  void Run(const Poll& poll) TB_EXCLUDES(mutex_);
  // Agent steps handed to the learner so far, all environments together.
  int64_t count() const { return count_; }

 private:
  void RunStream(const Stream& stream);
  // Steps one connection until it breaks. Resets `failures` after every rollout.
  void RunConnection(const Stream& stream, EnvStream* connection, int* failures);
  // One inference for all environments of a stream.
  std::vector<DynamicBatcher::Slice> Infer(const std::vector<Rollout>& rollouts, int64_t row,
                                           const std::vector<TensorNest>& agent_states);
  void CheckStopped() const;
  void Fail(std::exception_ptr error) TB_EXCLUDES(mutex_);
  void Stop() TB_EXCLUDES(mutex_);

  const Options options_;
  const std::shared_ptr<BatchingQueue<TensorNest>> learner_queue_;
  const std::shared_ptr<DynamicBatcher> inference_batcher_;
  const LogFunction log_;
  const std::shared_ptr<BufferPool> pool_;
  std::atomic<int64_t> count_{0};
  std::atomic<bool> stopped_{false};

  Mutex mutex_;
  CondVar stream_ended_;
  bool started_ TB_GUARDED_BY(mutex_) = false;
  int64_t running_ TB_GUARDED_BY(mutex_) = 0;
  std::exception_ptr first_error_ TB_GUARDED_BY(mutex_);
  // Every open connection, to be cancelled on Stop().
  std::set<EnvStream*> connections_ TB_GUARDED_BY(mutex_);
};

}  // namespace torchbeast
