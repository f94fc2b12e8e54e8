#include "pool/rollout.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace torchbeast {

namespace {

template <typename T>
void Store(std::byte* target, T value) {
  std::memcpy(target, &value, sizeof(T));
}

// One time step's and one batch entry's part of a [T, B, ...] leaf.
LeafSpec WithoutTimeAndBatch(const Tensor& tensor) {
  if (tensor.shape.rank() < 2) {
    throw std::invalid_argument("Agent outputs must be [1, B, ...], got " +
                                tensor.shape.ToString());
  }
  LeafSpec spec{tensor.dtype, {}};
  for (int i = 2; i < tensor.shape.rank(); ++i) spec.shape.Append(tensor.shape[i]);
  return spec;
}

}  // namespace

Rollout::Rollout(int64_t unroll_length, const SpecNest& observation,
                 std::shared_ptr<BufferPool> buffers)
    : num_rows_(unroll_length + 1), observation_(observation), buffers_(std::move(buffers)) {
  std::vector<LeafSpec> specs = observation_.flatten();
  num_observation_leaves_ = specs.size();
  static constexpr DType kFieldTypes[kNumFields] = {
      DType::kFloat32, DType::kBool, DType::kInt32, DType::kInt32,
      DType::kFloat32, DType::kBool, DType::kBool,  DType::kInt64,
  };
  for (DType dtype : kFieldTypes) specs.push_back(LeafSpec{dtype, {}});
  env_buffers_ = Allocate(specs);
}

std::vector<Tensor> Rollout::Allocate(const std::vector<LeafSpec>& specs) const {
  std::vector<Tensor> buffers;
  for (const LeafSpec& spec : specs) {
    buffers.push_back(buffers_->Empty(spec.dtype, spec.shape.WithLeading({num_rows_, 1})));
  }
  return buffers;
}

std::byte* Rollout::Row(const Tensor& buffer, int64_t row) const {
  return buffer.data + row * (buffer.NumBytes() / num_rows_);
}

void Rollout::WriteEnvOutput(int64_t row, const StepDecoder& decoder, const rpcenv::Reply& reply,
                             int64_t environment, int64_t last_action) {
  for (size_t i = 0; i < num_observation_leaves_; ++i) {
    decoder.ReadLeaf(reply, static_cast<int>(i), environment,
                     row > 0 ? Row(env_buffers_[i], row - 1) : nullptr, Row(env_buffers_[i], row));
  }
  const int e = static_cast<int>(environment);
  auto field = [&](Field f) { return Row(env_buffers_[num_observation_leaves_ + f], row); };
  Store<float>(field(kReward), reply.reward(e));
  Store<bool>(field(kDone), reply.done(e));
  Store<int32_t>(field(kTask), decoder.task());
  Store<int32_t>(field(kEpisodeStep), reply.episode_step(e));
  Store<float>(field(kEpisodeReturn), reply.episode_return(e));
  Store<bool>(field(kTruncated), reply.truncated(e));
  Store<bool>(field(kGameOver), reply.game_over(e));
  Store<int64_t>(field(kLastAction), last_action);
}

void Rollout::WriteAgentOutput(int64_t row, const TensorNest& outputs, int64_t offset) {
  const bool first = agent_buffers_.empty();
  if (first) {
    agent_ = outputs.map(WithoutTimeAndBatch);
    agent_buffers_ = Allocate(agent_.flatten());
  }
  try {
    agent_.check_same_structure(outputs);
  } catch (const nest::NestError& error) {
    throw std::invalid_argument(std::string("Agent outputs changed: ") + error.what());
  }
  size_t index = 0;
  outputs.for_each([&](const Tensor& tensor) {
    const Tensor& buffer = agent_buffers_[index++];
    if (!(WithoutTimeAndBatch(tensor) == WithoutTimeAndBatch(buffer))) {
      throw std::invalid_argument("Agent outputs changed their type or shape");
    }
    if (tensor.shape[0] != 1 || offset < 0 || offset >= tensor.shape[1]) {
      throw std::invalid_argument("Agent outputs must be [1, B, ...] with B > " +
                                  std::to_string(offset) + ", got " + tensor.shape.ToString());
    }
    const int64_t bytes = buffer.NumBytes() / num_rows_;
    const std::byte* source = tensor.data + offset * bytes;
    std::memcpy(Row(buffer, row), source, bytes);
    if (first) std::memcpy(Row(buffer, 0), source, bytes);
  });
}

TensorNest Rollout::Pack(const std::vector<Tensor>& env_leaves) const {
  const std::vector<Tensor> frames(env_leaves.begin(),
                                   env_leaves.begin() + num_observation_leaves_);
  TensorNest::Sequence items;
  items.push_back(observation_.pack_as(frames));
  for (size_t i = num_observation_leaves_; i < env_leaves.size(); ++i) {
    items.push_back(env_leaves[i]);
  }
  return TensorNest(std::move(items));
}

TensorNest Rollout::EnvOutput(int64_t row) const {
  std::vector<Tensor> leaves;
  leaves.reserve(env_buffers_.size());
  for (const Tensor& buffer : env_buffers_) {
    Tensor view = buffer;
    view.shape[0] = 1;
    view.shared = true;
    view.data = Row(buffer, row);
    leaves.push_back(std::move(view));
  }
  return Pack(leaves);
}

TensorNest Rollout::Finish() const {
  TensorNest::Sequence items;
  items.push_back(Pack(env_buffers_));
  items.push_back(agent_.pack_as(agent_buffers_));
  return TensorNest(std::move(items));
}

void Rollout::StartNext() {
  for (std::vector<Tensor>* buffers : {&env_buffers_, &agent_buffers_}) {
    for (Tensor& buffer : *buffers) {
      const Tensor old = std::exchange(buffer, buffers_->Empty(buffer.dtype, buffer.shape));
      std::memcpy(Row(buffer, 0), Row(old, num_rows_ - 1), old.NumBytes() / num_rows_);
    }
  }
}

}  // namespace torchbeast
