#include "server/environment_batch.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace torchbeast {

EnvironmentBatch::EnvironmentBatch(EnvironmentFactory factory, int64_t num_environments)
    : factory_(std::move(factory)),
      encoder_(num_environments),
      slots_(static_cast<size_t>(num_environments)) {}

TensorNest EnvironmentBatch::Start(Slot* slot) {
  *slot = Slot();
  slot->environment = factory_();
  TensorNest observation = slot->environment->Reset();
  encoder_.Check(observation);
  return observation;
}

void EnvironmentBatch::Open(rpcenv::Reply* reply) {
  encoder_.Begin(reply);
  for (size_t i = 0; i < slots_.size(); ++i) {
    try {
      const TensorNest observation = Start(&slots_[i]);
      Append(slots_[i], observation, {}, reply);
    } catch (const std::exception& error) {
      throw EnvironmentFailure{MakeFailure(i, error.what())};
    }
    if (i == 0) {
      *reply->mutable_schema()->mutable_observation() = EncodeSpec(encoder_.spec());
      CheckSize(reply->ByteSizeLong() * slots_.size());
    }
  }
}

void EnvironmentBatch::CheckSize(size_t bytes) const {
  if (bytes <= kMaxMessageBytes) return;
  throw WireError("the observations of " + std::to_string(slots_.size()) + " environments have " +
                  std::to_string(bytes) + " bytes; a message may have " +
                  std::to_string(kMaxMessageBytes) + ": start more servers");
}

void EnvironmentBatch::Step(const rpcenv::Request& request, rpcenv::Reply* reply) {
  if (static_cast<size_t>(request.actions_size()) != slots_.size()) {
    throw WireError("expected " + std::to_string(slots_.size()) + " actions, got " +
                    std::to_string(request.actions_size()));
  }
  encoder_.Begin(reply);
  for (size_t i = 0; i < slots_.size(); ++i) {
    StepOne(i, request.actions(static_cast<int>(i)), reply);
  }
}

TensorNest EnvironmentBatch::Advance(Slot* slot, int64_t action, Outcome* outcome) {
  if (slot->game_over_at_reset) {
    outcome->done = true;
    outcome->game_over = *slot->game_over_at_reset;
    slot->game_over_at_reset.reset();
    return slot->environment->Reset();
  }
  ++slot->num_steps;
  Environment::Result result = slot->environment->Step(action);
  outcome->reward = static_cast<float>(result.reward);
  if (!std::isfinite(outcome->reward)) {
    throw std::runtime_error("its reward is " + std::to_string(result.reward));
  }
  if (slot->episode_step < std::numeric_limits<int32_t>::max()) ++slot->episode_step;
  slot->episode_return += outcome->reward;
  if (!std::isfinite(static_cast<float>(slot->episode_return))) {
    throw std::runtime_error("its return is " + std::to_string(slot->episode_return));
  }
  if (result.terminated) {
    outcome->done = true;
    outcome->game_over = result.game_over;
    return slot->environment->Reset();
  }
  outcome->truncated = result.truncated;
  if (result.truncated) slot->game_over_at_reset = result.game_over;
  return std::move(result.observation);
}

void EnvironmentBatch::StepOne(size_t index, int64_t action, rpcenv::Reply* reply) {
  Slot& slot = slots_[index];
  Outcome outcome;
  TensorNest observation;
  try {
    observation = Advance(&slot, action, &outcome);
    encoder_.Check(observation);
  } catch (const std::exception& error) {
    observation = Replace(index, error.what(), reply);
    outcome = {};
    outcome.done = outcome.truncated = true;
  }
  Append(slot, observation, outcome, reply);
  if (outcome.game_over) {
    slot.episode_step = 0;
    slot.episode_return = 0.0;
  }
}

TensorNest EnvironmentBatch::Replace(size_t index, const std::string& reason,
                                     rpcenv::Reply* reply) {
  rpcenv::Failure failure = MakeFailure(index, reason);
  try {
    TensorNest observation = Start(&slots_[index]);
    *reply->add_failures() = failure;
    return observation;
  } catch (const std::exception& error) {
    failure.set_text(reason + "\nIts replacement failed, too:\n" + error.what());
    throw EnvironmentFailure{failure};
  }
}

rpcenv::Failure EnvironmentBatch::MakeFailure(size_t index, const std::string& reason) const {
  rpcenv::Failure failure;
  failure.set_environment(static_cast<uint32_t>(index));
  failure.set_step(slots_[index].num_steps);
  failure.set_text(reason);
  return failure;
}

void EnvironmentBatch::Append(const Slot& slot, const TensorNest& observation,
                              const Outcome& outcome, rpcenv::Reply* reply) {
  encoder_.Append(observation, /*episode_start=*/outcome.done, reply);
  reply->add_reward(outcome.reward);
  reply->add_done(outcome.done);
  reply->add_truncated(outcome.truncated);
  reply->add_game_over(outcome.game_over);
  reply->add_episode_step(slot.episode_step);
  reply->add_episode_return(static_cast<float>(slot.episode_return));
}

}  // namespace torchbeast
