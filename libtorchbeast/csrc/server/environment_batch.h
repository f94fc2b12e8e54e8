// The environments of one stream: stepped together, each replaced on its own when it fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "rpcenv.pb.h"
#include "wire/wire.h"

namespace torchbeast {

// Thrown by environments for what is no failure of theirs, such as Ctrl-C. Ends the server.
struct Interrupted {
  // What the environment threw; null if the server was stopped instead.
  std::exception_ptr cause;
};

// One environment, closed by its destructor. What it throws, other than Interrupted, is a failure
// of its own.
class Environment {
 public:
  // What a step returns.
  struct Result {
    // Not used if the episode terminated: Reset() has the next one.
    TensorNest observation;
    // Raw.
    double reward = 0.0;
    // The episode ended in a terminal state.
    bool terminated = false;
    // The episode was cut off by a limit. Does not count if it terminated, too.
    bool truncated = false;
    // With the episode the full game ended. Counts only if it did end.
    bool game_over = true;
  };

  virtual ~Environment() = default;
  // Starts an episode and returns its first observation.
  virtual TensorNest Reset() = 0;
  virtual Result Step(int64_t action) = 0;
};

using EnvironmentFactory = std::function<std::unique_ptr<Environment>()>;

// Thrown where an environment failed and could not be replaced.
struct EnvironmentFailure {
  rpcenv::Failure failure;
};

// Not thread-safe.
class EnvironmentBatch {
 public:
  // Makes no environment yet.
  EnvironmentBatch(EnvironmentFactory factory, int64_t num_environments);
  EnvironmentBatch(const EnvironmentBatch&) = delete;
  EnvironmentBatch& operator=(const EnvironmentBatch&) = delete;

  // Makes the environments and fills `reply` with their first observations and the structure of
  // these. Throws EnvironmentFailure, Interrupted, and WireError if they do not fit into a message.
  void Open(rpcenv::Reply* reply);
  // Fills `reply` with the results of the actions in `request`. An environment that fails is
  // replaced. Throws WireError unless there is one action for each, EnvironmentFailure if one
  // cannot be replaced, and Interrupted.
  void Step(const rpcenv::Request& request, rpcenv::Reply* reply);

 private:
  struct Slot {
    std::unique_ptr<Environment> environment;
    // Steps since it was made.
    uint64_t num_steps = 0;
    // Agent steps and return of the full game so far. In double: a float loses unit rewards beyond
    // 2^24.
    int32_t episode_step = 0;
    double episode_return = 0.0;
    // After a truncated episode: the next step is a reset, and says whether the full game is over.
    std::optional<bool> game_over_at_reset;
  };
  // What goes into the reply beside the observation.
  struct Outcome {
    float reward = 0.0F;
    bool done = false;
    bool truncated = false;
    bool game_over = false;
  };

  // Makes the environment of `slot` and returns its first observation, checked.
  TensorNest Start(Slot* slot);
  // Throws WireError if the first observations of all environments, which are equally large, do not
  // fit into a message. Called after the first one: all might need more memory than there is.
  void CheckSize(size_t bytes) const;
  // Steps the environment of `slot`, or resets it after a truncated episode. Returns what is to be
  // observed then.
  TensorNest Advance(Slot* slot, int64_t action, Outcome* outcome);
  void StepOne(size_t index, int64_t action, rpcenv::Reply* reply);
  // Replaces an environment that failed because of `reason`, says so in `reply`, and returns the
  // new one's first observation. Throws EnvironmentFailure if that fails, too.
  TensorNest Replace(size_t index, const std::string& reason, rpcenv::Reply* reply);
  rpcenv::Failure MakeFailure(size_t index, const std::string& reason) const;
  void Append(const Slot& slot, const TensorNest& observation, const Outcome& outcome,
              rpcenv::Reply* reply);

  const EnvironmentFactory factory_;
  StepEncoder encoder_;
  std::vector<Slot> slots_;
};

}  // namespace torchbeast
