#include "client.h"

#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

namespace torchbeast {

namespace {

// Small: inputs are short, and many run in a second.
constexpr int64_t kUnrollLength = 2;
constexpr int64_t kMaxRolloutBytes = 1 << 20;

ActorOptions Options() {
  ActorOptions options;
  options.unroll_length = kUnrollLength;
  options.max_rollout_bytes = kMaxRolloutBytes;
  // A failure too many ends the run, which is no fault.
  options.max_environment_failures = std::numeric_limits<int>::max();
  return options;
}

// Whoever exports an array of `shape` computes its strides: none may overflow.
void CheckStrides(const Shape& shape) {
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    Require(!__builtin_mul_overflow(stride, shape[i], &stride), "a stride that overflows");
  }
}

}  // namespace

void Require(bool condition, const std::string& what) {
  if (!condition) throw std::logic_error(what);
}

FuzzClient::FuzzClient(int64_t num_environments)
    : stream_{"unix:fuzz", num_environments}, options_(Options()), recovery_(stream_, options_) {}

bool FuzzClient::Take(const rpcenv::Reply& reply) {
  if (reply.has_fatal()) {
    const auto task = decoder_ ? std::optional<int32_t>(decoder_->task()) : std::nullopt;
    recovery_.Count(reply.fatal(), task);
    return false;
  }
  if (!decoder_) return TakeFirst(reply);
  decoder_->Check(reply);
  for (const rpcenv::Failure& failure : reply.failures()) {
    recovery_.Count(failure, decoder_->task());
  }
  ++row_;
  Write(reply);
  if (row_ < kUnrollLength) return true;
  for (Rollout& rollout : rollouts_) {
    rollout.Finish();
    rollout.StartNext();
  }
  row_ = 0;
  return true;
}

bool FuzzClient::TakeFirst(const rpcenv::Reply& reply) {
  auto decoder = std::make_unique<StepDecoder>(stream_.num_environments);
  decoder->ReadSchema(reply);
  decoder->Check(reply);
  const int64_t num_rows = (kUnrollLength + 1) * stream_.num_environments;
  if (decoder->RowBytes() > kMaxRolloutBytes / num_rows) return false;
  decoder_ = std::move(decoder);
  leaf_specs_ = decoder_->spec().flatten();
  for (const LeafSpec& spec : leaf_specs_) CheckStrides(spec.shape);
  const SpecNest same = DecodeSpec(EncodeSpec(decoder_->spec()));
  Require(same.has_same_structure(decoder_->spec()), "a structure that changes when encoded");
  Require(same.flatten() == leaf_specs_, "an array that changes when encoded");
  for (int64_t e = 0; e < stream_.num_environments; ++e) {
    rollouts_.emplace_back(kUnrollLength, decoder_->spec(), buffers_);
  }
  rows_.resize(rollouts_.size());
  Write(reply);
  return true;
}

void FuzzClient::Write(const rpcenv::Reply& reply) {
  std::vector<TensorNest> outputs;
  for (int64_t e = 0; e < stream_.num_environments; ++e) {
    WriteOne(reply, e);
    outputs.push_back(rollouts_[e].EnvOutput(row_));
  }
  Concatenate(outputs, /*dim=*/1, *buffers_);  // As inference does.
}

void FuzzClient::WriteOne(const rpcenv::Reply& reply, int64_t environment) {
  Rollout& rollout = rollouts_[environment];
  rollout.WriteEnvOutput(row_, *decoder_, reply, environment, /*last_action=*/0);
  const std::vector<Tensor> written = rollout.EnvOutput(row_).sequence()[0].flatten();
  Row& previous = rows_[environment];
  Row next;
  for (size_t i = 0; i < leaf_specs_.size(); ++i) {
    const int64_t bytes = leaf_specs_[i].NumBytes();
    next.push_back(std::make_unique<std::byte[]>(bytes));
    decoder_->ReadLeaf(reply, static_cast<int>(i), environment,
                       previous.empty() ? nullptr : previous[i].get(), next[i].get());
    Require(std::memcmp(written[i].data, next[i].get(), bytes) == 0,
            "an array that the rollout has differently");
  }
  previous = std::move(next);
}

}  // namespace torchbeast
