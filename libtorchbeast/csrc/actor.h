// The environments of one stream and their rollouts, as a state machine.
//
// Connects, opens, then alternates between inference and stepping; after `unroll_length` steps each
// environment's rollout is delivered. It reconnects when its server dies. Events come from
// different threads, one at a time: completions from the pool's loop, answers from inference
// threads.
#pragma once

#include <grpcpp/alarm.h>

#include <memory>
#include <string>
#include <vector>

#include "dynamic_batcher.h"
#include "env_stream.h"
#include "rollout.h"

namespace torchbeast {

enum class LogLevel { kInfo, kWarning, kError };
using LogFunction = std::function<void(LogLevel, const std::string&)>;

struct StreamOptions {
  std::string address;
  int64_t num_environments = 1;
};

struct ActorOptions {
  int64_t unroll_length = 0;
  // Of one environment: each leaf with batch dimension 1 at axis 1. May have no leaves.
  TensorNest initial_agent_state;
  bool newest_plane = true;
  // How long a stream looks for its server, at the start and after losing it.
  std::chrono::milliseconds connect_timeout{600'000};
  // How often in succession, without a whole rollout in between, a stream's environments may raise
  // before the pool gives up.
  int max_environment_failures = 3;
  Tls tls;
};

class Actor : public std::enable_shared_from_this<Actor> {
 public:
  // What an actor needs of its pool. Called with the actor's lock held.
  class Pool {
   public:
    virtual ~Pool() = default;
    // Queues inputs for inference; they are submitted when the calling thread, one of the pool's,
    // has let go of the actor.
    virtual void Infer(DynamicBatcher::Submission submission) = 0;
    // Puts rollouts into the learner queue, which may take long, then calls Continue().
    virtual void Deliver(std::shared_ptr<Actor> actor, std::vector<TensorNest> rollouts) = 0;
    // Ends the pool with an error.
    virtual void Fail(std::exception_ptr error) = 0;
    virtual void Log(LogLevel level, const std::string& message) = 0;
  };

  Actor(StreamOptions stream, const ActorOptions& options, Pool* pool, grpc::CompletionQueue* queue,
        std::shared_ptr<BufferPool> buffers);

  // Begins to connect.
  void Start() TB_EXCLUDES(mutex_);
  // Takes in an operation off the completion queue.
  void Complete(EnvStream::Operation operation, bool ok) TB_EXCLUDES(mutex_);
  // Goes on after a delivery.
  void Continue() TB_EXCLUDES(mutex_);
  // Cancels what is under way. Afterwards the actor starts no operation and never calls its pool.
  void Stop() TB_EXCLUDES(mutex_);
  // Frees the connection, after Stop() and when no operation is under way any more. Inference may
  // still hold on to the actor.
  void Release() TB_EXCLUDES(mutex_);

 private:
  void Connect() TB_REQUIRES(mutex_);
  void Reconnect() TB_REQUIRES(mutex_);
  void OnReply() TB_REQUIRES(mutex_);
  void OnFirstReply() TB_REQUIRES(mutex_);
  void OnFinished() TB_REQUIRES(mutex_);
  void RequestInference() TB_REQUIRES(mutex_);
  void OnInference(std::vector<DynamicBatcher::Slice> slices, bool dropped) TB_EXCLUDES(mutex_);
  void TakeActions(const std::vector<DynamicBatcher::Slice>& slices) TB_REQUIRES(mutex_);
  void DeliverRollouts() TB_REQUIRES(mutex_);
  // Runs `function`; what it throws ends the pool.
  template <typename Function>
  void Guard(Function&& function) TB_REQUIRES(mutex_);

  const StreamOptions options_;
  const ActorOptions& actor_options_;
  Pool* const pool_;
  grpc::CompletionQueue* const queue_;
  const std::shared_ptr<BufferPool> buffers_;

  Mutex mutex_;
  bool stopped_ TB_GUARDED_BY(mutex_) = false;
  std::unique_ptr<EnvStream> stream_ TB_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> backoff_timer_ TB_GUARDED_BY(mutex_);
  EnvStream::Tag backoff_tag_;
  Clock::time_point connect_deadline_ TB_GUARDED_BY(mutex_);
  std::chrono::milliseconds backoff_ TB_GUARDED_BY(mutex_);
  int failures_ TB_GUARDED_BY(mutex_) = 0;

  // Of the present connection; empty before its first reply.
  std::unique_ptr<StepDecoder> decoder_ TB_GUARDED_BY(mutex_);
  std::vector<Rollout> rollouts_ TB_GUARDED_BY(mutex_);
  int64_t row_ TB_GUARDED_BY(mutex_) = 0;  // The newest row of environment outputs.
  bool has_first_output_ TB_GUARDED_BY(mutex_) = false;
  std::vector<int64_t> last_actions_ TB_GUARDED_BY(mutex_);
  std::vector<TensorNest> agent_states_ TB_GUARDED_BY(mutex_);
  // The states before each rollout's first row.
  std::vector<TensorNest> initial_states_ TB_GUARDED_BY(mutex_);
};

}  // namespace torchbeast
