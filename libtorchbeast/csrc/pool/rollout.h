// One environment's trajectory under construction: unroll_length + 1 rows in time-major buffers.
//
// A row pairs what an environment returned with the agent's output that led to it. The last row of
// a rollout is the first of the next. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "wire/wire.h"

namespace torchbeast {

class Rollout {
 public:
  // Rows of `unroll_length` steps plus one, observations as `observation`.
  Rollout(int64_t unroll_length, const SpecNest& observation, std::shared_ptr<BufferPool> buffers);

  // Fills row `row` from the results of `environment` in `reply`. Frame stacks are rebuilt from the
  // row before. `last_action` is what the environment was given.
  void WriteEnvOutput(int64_t row, const StepDecoder& decoder, const rpcenv::Reply& reply,
                      int64_t environment, int64_t last_action);
  // Fills row `row` with row `offset` of the agent's outputs, [1, B, ...]. The first call fixes
  // their structure and fills row 0, too: no action led to it, and the learner ignores its output.
  // std::invalid_argument if they have another structure or no such row.
  void WriteAgentOutput(int64_t row, const TensorNest& outputs, int64_t offset);
  // The environment's part of row `row`, each leaf [1, 1, ...]: a view.
  TensorNest EnvOutput(int64_t row) const;
  // (environment outputs, agent outputs), each leaf [T + 1, 1, ...]: a view that keeps the buffers.
  TensorNest Finish() const;
  // Takes new buffers, whose first row is the last row of the old ones.
  void StartNext();

 private:
  // The environment's leaves behind those of the observation, in the order of EnvOutput in
  // torchbeast/core/types.py: fields are found there by position.
  enum Field {
    kReward,
    kDone,
    kTask,
    kEpisodeStep,
    kEpisodeReturn,
    kTruncated,
    kGameOver,
    kLastAction,
    kNumFields,
  };
  std::byte* Row(const Tensor& buffer, int64_t row) const;
  TensorNest Pack(const std::vector<Tensor>& env_leaves) const;
  // Buffers for all rows of leaves of these types.
  std::vector<Tensor> Allocate(const std::vector<LeafSpec>& specs) const;

  const int64_t num_rows_;
  const SpecNest observation_;
  const std::shared_ptr<BufferPool> buffers_;
  size_t num_observation_leaves_ = 0;
  std::vector<Tensor> env_buffers_;
  SpecNest agent_;
  std::vector<Tensor> agent_buffers_;
};

}  // namespace torchbeast
