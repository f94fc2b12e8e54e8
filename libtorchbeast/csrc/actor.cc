#include "actor.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "errors.h"

namespace torchbeast {

namespace {

constexpr std::chrono::milliseconds kFirstBackoff{100};
constexpr std::chrono::milliseconds kLastBackoff{1000};

// The value of an integer action of one element, for the record's `last_action`; 0 for others.
int64_t ActionAsInt64(const LeafSpec& spec, const std::byte* data) {
  if (spec.shape.NumElements() != 1) return 0;
  if (spec.dtype == DType::kInt64) {
    int64_t value;
    std::memcpy(&value, data, sizeof(value));
    return value;
  }
  if (spec.dtype == DType::kInt32) {
    int32_t value;
    std::memcpy(&value, data, sizeof(value));
    return value;
  }
  return 0;
}

// (agent outputs, agent state) as inference returns them.
const TensorNest& Part(const DynamicBatcher::Slice& slice, size_t index) {
  const TensorNest& outputs = *slice.outputs;
  if (!outputs.is_sequence() || outputs.sequence().size() != 2) {
    throw std::invalid_argument("Inference must return (agent outputs, agent state), got " +
                                outputs.describe());
  }
  return outputs.sequence()[index];
}

}  // namespace

Actor::Actor(StreamOptions stream, const ActorOptions& options, Listener* listener,
             grpc::CompletionQueue* queue, std::shared_ptr<BufferPool> buffers)
    : options_(std::move(stream)),
      actor_options_(options),
      listener_(listener),
      queue_(queue),
      buffers_(std::move(buffers)),
      backoff_tag_{this, EnvStream::Operation::kConnect},
      backoff_(kFirstBackoff) {}

void Actor::Fail() { listener_->Fail(std::current_exception()); }

void Actor::Start() {
  MutexLock lock(mutex_);
  if (stopped_) return;
  try {
    Connect();
  } catch (...) {
    Fail();
  }
}

std::optional<Actor::Submission> Actor::OnDelivered() {
  MutexLock lock(mutex_);
  if (stopped_) return std::nullopt;
  try {
    return MakeSubmission();
  } catch (...) {
    Fail();
    return std::nullopt;
  }
}

void Actor::Stop() {
  MutexLock lock(mutex_);
  stopped_ = true;
  if (stream_) stream_->Cancel();
  if (backoff_timer_) backoff_timer_->Cancel();
}

void Actor::Release() {
  MutexLock lock(mutex_);
  stream_.reset();
  backoff_timer_.reset();
}

void Actor::Connect() {
  stream_ =
      std::make_unique<EnvStream>(options_.address, actor_options_.tls, options_.num_environments,
                                  actor_options_.newest_plane, queue_, this);
  connect_deadline_ = Clock::now() + actor_options_.connect_timeout;
  stream_->Connect();
}

void Actor::Reconnect() {
  decoder_.reset();
  rollouts_.clear();
  stream_.reset();
  backoff_timer_ = std::make_unique<grpc::Alarm>();
  backoff_timer_->Set(queue_, std::chrono::system_clock::now() + backoff_, &backoff_tag_);
  backoff_ = std::min(backoff_ * 2, kLastBackoff);
}

std::optional<Actor::Submission> Actor::OnCompletion(EnvStream::Operation operation, bool ok) {
  MutexLock lock(mutex_);
  if (stopped_) return std::nullopt;
  try {
    if (stream_) return OnEvent(stream_->Advance(operation, ok));
    Connect();  // The backoff is over.
  } catch (...) {
    Fail();
  }
  return std::nullopt;
}

std::optional<Actor::Submission> Actor::OnEvent(EnvStream::Event event) {
  switch (event) {
    case EnvStream::Event::kNothing:
      break;
    case EnvStream::Event::kConnected:
      stream_->Open();
      break;
    case EnvStream::Event::kConnecting:
      if (Clock::now() >= connect_deadline_) {
        throw std::runtime_error(
            "No environment server answered at " + options_.address + " within " +
            std::to_string(actor_options_.connect_timeout.count() / 1000) + " s");
      }
      stream_->Connect();
      break;
    case EnvStream::Event::kReply:
      return OnReply();
    case EnvStream::Event::kBroken:
      stream_->Finish();
      break;
    case EnvStream::Event::kFinished:
      OnFinished();
      break;
  }
  return std::nullopt;
}

void Actor::OnFinished() {
  const grpc::Status status = stream_->status();
  const std::string message = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::INTERNAL: {
      const std::string count = std::to_string(++failures_);
      if (failures_ >= actor_options_.max_environment_failures) {
        throw std::runtime_error("An environment of " + options_.address + " failed " + count +
                                 " times in succession:\n" + message);
      }
      listener_->Log(LogLevel::kError, "An environment of " + options_.address + " failed (" +
                                           count + " of " +
                                           std::to_string(actor_options_.max_environment_failures) +
                                           "), starting it again:\n" + message);
      break;
    }
    case grpc::StatusCode::OK:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::ABORTED:
      listener_->Log(LogLevel::kWarning,
                     "Environment server at " + options_.address + " went away" +
                         (message.empty() ? "" : " (" + message + ")") + "; connecting again");
      break;
    default:  // The two sides do not understand each other: trying again would not help.
      throw WireError("Environment server at " + options_.address + ": " + message);
  }
  Reconnect();
}

std::optional<Actor::Submission> Actor::OnReply() {
  if (!decoder_) {
    OnFirstReply();
  } else {
    decoder_->Check(stream_->reply());
    ++row_;
    for (size_t e = 0; e < rollouts_.size(); ++e) {
      rollouts_[e].WriteEnvOutput(row_, *decoder_, stream_->reply(), static_cast<int64_t>(e),
                                  last_actions_[e]);
    }
  }
  if (row_ < actor_options_.unroll_length) return MakeSubmission();
  DeliverRollouts();
  return std::nullopt;
}

void Actor::OnFirstReply() {
  decoder_ = std::make_unique<StepDecoder>(options_.num_environments);
  decoder_->ReadSchema(stream_->reply());
  decoder_->Check(stream_->reply());
  backoff_ = kFirstBackoff;
  row_ = 0;
  has_first_output_ = false;
  for (int64_t e = 0; e < options_.num_environments; ++e) {
    rollouts_.emplace_back(actor_options_.unroll_length, decoder_->spec(), buffers_);
    rollouts_.back().WriteEnvOutput(0, *decoder_, stream_->reply(), e, /*last_action=*/0);
  }
  last_actions_.assign(options_.num_environments, 0);
  agent_states_.assign(options_.num_environments, actor_options_.initial_agent_state);
  initial_states_ = agent_states_;
}

Actor::Submission Actor::MakeSubmission() {
  Submission submission;
  submission.inputs.reserve(rollouts_.size());
  for (size_t e = 0; e < rollouts_.size(); ++e) {
    submission.inputs.push_back(
        TensorNest(TensorNest::Sequence{rollouts_[e].EnvOutput(row_), agent_states_[e]}));
  }
  submission.on_outputs = [self = shared_from_this()](std::vector<DynamicBatcher::Slice> slices,
                                                      bool dropped) {
    self->OnOutputs(std::move(slices), dropped);
  };
  return submission;
}

void Actor::OnOutputs(std::vector<DynamicBatcher::Slice> slices, bool dropped) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  try {
    if (dropped) throw AsyncError();
    TakeActions(slices);
    stream_->Step();
  } catch (...) {
    Fail();
  }
}

void Actor::TakeActions(const std::vector<DynamicBatcher::Slice>& slices) {
  rpcenv::Request& request = stream_->request();
  request.mutable_actions()->clear();
  for (size_t e = 0; e < rollouts_.size(); ++e) {
    const DynamicBatcher::Slice& slice = slices[e];
    const TensorNest& outputs = Part(slice, 0);
    // No action led to the very first row: it gets the first output, too, which the learner
    // ignores.
    if (!has_first_output_) rollouts_[e].WriteAgentOutput(0, outputs, slice.offset);
    rollouts_[e].WriteAgentOutput(row_ + 1, outputs, slice.offset);
    agent_states_[e] = Part(slice, 1).map(
        [&](const Tensor& state) { return CopySlice(state, 1, slice.offset, 1, *buffers_); });
    const Tensor& action = outputs.front();
    LeafSpec spec{action.dtype, {}};
    for (int i = 2; i < action.shape.rank(); ++i) spec.shape.Append(action.shape[i]);
    const std::byte* data = action.data + slice.offset * spec.NumBytes();
    last_actions_[e] = ActionAsInt64(spec, data);
    request.mutable_actions()->append(reinterpret_cast<const char*>(data), spec.NumBytes());
    if (e == 0) *request.mutable_action_spec() = EncodeArraySpec(spec);
  }
  has_first_output_ = true;
}

void Actor::DeliverRollouts() {
  std::vector<TensorNest> finished;
  finished.reserve(rollouts_.size());
  for (size_t e = 0; e < rollouts_.size(); ++e) {
    finished.push_back(TensorNest(TensorNest::Sequence{rollouts_[e].Finish(), initial_states_[e]}));
    rollouts_[e].StartNext();
  }
  initial_states_ = agent_states_;
  row_ = 0;
  failures_ = 0;
  listener_->Deliver(shared_from_this(), std::move(finished));
}

}  // namespace torchbeast
