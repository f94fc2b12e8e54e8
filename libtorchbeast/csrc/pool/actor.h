// The environments of one stream and their rollouts, as a state machine.
//
// Opens a stream, then alternates between inference and stepping; after `unroll_length` steps each
// environment's rollout is delivered. What happens when the stream ends is StreamError's remedy: it
// reconnects and starts its rollouts anew, or the run ends. Events come from different threads, one
// at a time: completions from the pool's thread for this stream, outputs from inference threads,
// OnDelivered from the thread that delivers rollouts, CheckDeadline from the thread that runs the
// pool, and SetAddress from any.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/errors.h"
#include "core/sync.h"
#include "core/tensor.h"
#include "pool/actor_options.h"
#include "pool/client_stream.h"
#include "pool/dynamic_batcher.h"
#include "pool/recovery.h"
#include "pool/rollout.h"
#include "wire/wire.h"

namespace torchbeast {

class Actor final : public std::enable_shared_from_this<Actor> {
 public:
  // Inputs for inference. Whoever gets them from an actor submits them.
  using Submission = DynamicBatcher::Submission;

  // What an actor reports. Called with the actor's lock held.
  class Listener {
   public:
    virtual ~Listener() = default;
    // Takes rollouts for the learner queue and returns at once. When they are in the queue, which
    // may take long, another thread calls OnDelivered().
    virtual void Deliver(std::shared_ptr<Actor> actor, std::vector<TensorNest> rollouts) = 0;
    // Whether any stream's server answered a step within the connect timeout, or would step if this
    // side were not busy.
    virtual bool HasProgress() const = 0;
    // Ends the run with an error.
    virtual void Fail(std::exception_ptr error) = 0;
    virtual void Log(LogLevel level, const std::string& message) = 0;
  };

  // `listener` and `queue` must outlive the actor's operations.
  Actor(StreamOptions stream, const ActorOptions& options, Listener* listener,
        grpc::CompletionQueue* queue, std::shared_ptr<BufferPool> buffers);

  // When the server was last asked for a step after it had answered one; the clock's epoch before
  // that. The far future while it waits for inference or for a full learner queue.
  Clock::time_point last_progress() const { return Clock::time_point(Clock::duration(progress_)); }
  // Begins to connect.
  void Start() TB_EXCLUDES(mutex_);
  // The stream moves to the server at `address`: its connection and its unfinished rollouts are
  // dropped, which counts as no failure. Empty: it waits for the next call. At any time.
  void SetAddress(const std::string& address) TB_EXCLUDES(mutex_);
  // To be called now and then: gives up what takes longer than it may.
  void CheckDeadline(Clock::time_point now) TB_EXCLUDES(mutex_);
  // An operation of its stream completed; `ok` as gRPC says. Returns what is to be submitted for
  // inference once the calling thread holds no locks: submitting may call back.
  std::optional<Submission> OnCompletion(ClientStream::Operation operation, bool ok)
      TB_EXCLUDES(mutex_);
  // The rollouts are in the learner queue.
  std::optional<Submission> OnDelivered() TB_EXCLUDES(mutex_);
  // Cancels what is under way. Afterwards the actor starts no operation and reports nothing.
  void Stop() TB_EXCLUDES(mutex_);
  // Frees the connection, after Stop() and when no operation is under way any more. Inference may
  // still hold on to the actor.
  void Release() TB_EXCLUDES(mutex_);

 private:
  // What the server owes an answer to.
  enum class Awaited { kNothing, kOpening, kStep, kStatus };

  // If there is an address; else waits for SetAddress().
  void Connect() TB_REQUIRES(mutex_);
  void Reconnect() TB_REQUIRES(mutex_);
  void ConnectAt(std::chrono::system_clock::time_point time) TB_REQUIRES(mutex_);
  // Ends the stream because of `error`. Its operations complete, and Finish() follows.
  void Cancel(StreamError error) TB_REQUIRES(mutex_);
  // The same for a stream that has no operation under way.
  void GiveUp(StreamError error) TB_REQUIRES(mutex_);
  std::optional<Submission> OnEvent(ClientStream::Event event) TB_REQUIRES(mutex_);
  std::optional<Submission> OnReply() TB_REQUIRES(mutex_);
  void OnFirstReply() TB_REQUIRES(mutex_);
  // Throws StreamError if a server has other environments than this run.
  void CheckEnvironment(const StepDecoder& decoder) const;
  void OnStepReply() TB_REQUIRES(mutex_);
  // The stream has ended, or could not begin, because of `error`.
  void OnEnd(const StreamError& error) TB_REQUIRES(mutex_);
  // Counts and logs the failure of one environment.
  void CountFailure(const rpcenv::Failure& failure) TB_REQUIRES(mutex_);
  Submission MakeSubmission() TB_REQUIRES(mutex_);
  void OnOutputs(std::optional<std::vector<DynamicBatcher::Slice>> slices) TB_EXCLUDES(mutex_);
  void TakeActions(const std::vector<DynamicBatcher::Slice>& slices) TB_REQUIRES(mutex_);
  void DeliverRollouts() TB_REQUIRES(mutex_);
  // Reports the exception that is being handled.
  void Fail() TB_REQUIRES(mutex_);

  const ActorOptions& options_;
  Listener* const listener_;
  grpc::CompletionQueue* const queue_;
  const std::shared_ptr<BufferPool> buffers_;

  // Ticks of the clock.
  std::atomic<Clock::rep> progress_{0};
  Mutex mutex_;
  bool stopped_ TB_GUARDED_BY(mutex_) = false;
  // The address is where the next connection goes.
  StreamOptions stream_options_ TB_GUARDED_BY(mutex_);
  // From Start() to Stop() there is a stream or the timer runs, for ever while there is no address.
  std::unique_ptr<ClientStream> stream_ TB_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> connect_timer_ TB_GUARDED_BY(mutex_);
  ClientStream::Tag connect_tag_;
  Awaited awaited_ TB_GUARDED_BY(mutex_) = Awaited::kNothing;
  Clock::time_point deadline_ TB_GUARDED_BY(mutex_);
  // Why this side gave up the stream.
  std::optional<StreamError> given_up_ TB_GUARDED_BY(mutex_);
  Recovery recovery_ TB_GUARDED_BY(mutex_);

  // Decodes the present connection; empty before its first reply.
  std::unique_ptr<StepDecoder> decoder_ TB_GUARDED_BY(mutex_);
  std::vector<Rollout> rollouts_ TB_GUARDED_BY(mutex_);
  int64_t row_ TB_GUARDED_BY(mutex_) = 0;  // The newest row of environment outputs.
  std::vector<int64_t> last_actions_ TB_GUARDED_BY(mutex_);
  std::vector<TensorNest> agent_states_ TB_GUARDED_BY(mutex_);
  // The states before each rollout's first row.
  std::vector<TensorNest> initial_states_ TB_GUARDED_BY(mutex_);
};

}  // namespace torchbeast
