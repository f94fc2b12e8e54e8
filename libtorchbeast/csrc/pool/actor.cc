#include "pool/actor.h"

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/errors.h"
#include "wire/socket_path.h"

namespace torchbeast {

namespace {

// How long a broken stream may take to tell its status.
constexpr std::chrono::milliseconds kStatusTimeout{5000};

// `leaf` for somebody else to read, too.
Tensor Shared(Tensor leaf) {
  leaf.shared = true;
  return leaf;
}

// Of `progress_`: the server has answered a step and was not asked for the next one yet.
constexpr Clock::rep kAnswered = Clock::time_point::max().time_since_epoch().count();

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
    : options_(options),
      listener_(listener),
      queue_(queue),
      buffers_(std::move(buffers)),
      stream_options_(std::move(stream)),
      connect_tag_{this, ClientStream::Operation::kStart},
      recovery_(stream_options_, options_) {}

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

void Actor::SetAddress(const std::string& address) {
  MutexLock lock(mutex_);
  if (stopped_ || address == stream_options_.address) return;
  stream_options_.address = address;
  recovery_.OnNewAddress();
  if (stream_) {
    given_up_.reset();  // Whatever else ends the stream is no failure of the new server.
    Cancel(StreamError(StreamError::Remedy::kMove, "its address changed"));
  }
  if (connect_timer_) connect_timer_->Cancel();
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
  if (connect_timer_) connect_timer_->Cancel();
}

void Actor::Release() {
  MutexLock lock(mutex_);
  stream_.reset();
  connect_timer_.reset();
}

void Actor::Connect() {
  if (stream_options_.address.empty()) {
    ConnectAt(std::chrono::system_clock::time_point::max());
    return;
  }
  deadline_ = recovery_.OnConnect(Clock::now());
  if (const auto path = SocketPath(stream_options_.address); path && !HasOwnFile(*path)) {
    OnEnd(StreamError(StreamError::Remedy::kReconnect, "there is no such socket"));
    return;
  }
  stream_ = std::make_unique<ClientStream>(stream_options_.address, options_.tls,
                                           stream_options_.num_environments,
                                           options_.max_message_bytes, queue_, this);
  given_up_.reset();
  awaited_ = Awaited::kOpening;
  stream_->Open();
}

void Actor::Reconnect() {
  decoder_.reset();
  rollouts_.clear();
  stream_.reset();
  awaited_ = Awaited::kNothing;
  ConnectAt(std::chrono::system_clock::now() + recovery_.NextBackoff());
}

void Actor::ConnectAt(std::chrono::system_clock::time_point time) {
  connect_timer_ = std::make_unique<grpc::Alarm>();
  TB_OPERATION_STARTS(&connect_tag_);
  connect_timer_->Set(queue_, time, &connect_tag_);
}

void Actor::CheckDeadline(Clock::time_point now) {
  MutexLock lock(mutex_);
  if (stopped_ || awaited_ == Awaited::kNothing || now < deadline_) return;
  const std::string environments =
      std::to_string(stream_options_.num_environments) + " environments";
  if (awaited_ == Awaited::kOpening) {
    Cancel(StreamError(StreamError::Remedy::kReconnect, "it has not opened " + environments));
  } else if (awaited_ == Awaited::kStep) {
    Cancel(StreamError(StreamError::Remedy::kReconnect, "it has not answered a step of " +
                                                            environments + " for " +
                                                            Seconds(options_.step_timeout)));
  } else {  // For gRPC the stream is open, although nothing could be read from it.
    Cancel(StreamError(StreamError::Remedy::kReconnect,
                       "it broke off without a status: perhaps it sent what cannot be parsed"));
  }
}

void Actor::Cancel(StreamError error) {
  // What ended the stream is the first error; what follows may come of that.
  if (!given_up_) given_up_.emplace(std::move(error));
  awaited_ = Awaited::kNothing;
  stream_->Cancel();
}

void Actor::GiveUp(StreamError error) {
  Cancel(std::move(error));
  stream_->Finish();
}

std::optional<Actor::Submission> Actor::OnCompletion(ClientStream::Operation operation, bool ok) {
  MutexLock lock(mutex_);
  if (stopped_) return std::nullopt;
  try {
    if (!stream_) {  // The backoff is over.
      Connect();
      return std::nullopt;
    }
    try {
      return OnEvent(stream_->Advance(operation, ok));
    } catch (const WireError& error) {
      GiveUp(StreamError(StreamError::Remedy::kEndRun,
                         "it sent a malformed reply: " + std::string(error.what())));
    } catch (const StreamError& error) {
      GiveUp(error);
    }
  } catch (...) {
    Fail();
  }
  return std::nullopt;
}

std::optional<Actor::Submission> Actor::OnEvent(ClientStream::Event event) {
  switch (event) {
    case ClientStream::Event::kNothing:
      break;
    case ClientStream::Event::kReply:
      awaited_ = Awaited::kNothing;
      if (!given_up_) return OnReply();
      stream_->Finish();
      break;
    case ClientStream::Event::kBroken:
      awaited_ = Awaited::kStatus;
      deadline_ = Clock::now() + kStatusTimeout;
      stream_->Finish();
      break;
    case ClientStream::Event::kFinished:
      OnEnd(given_up_ ? *given_up_ : recovery_.Explain(stream_->status()));
      break;
  }
  return std::nullopt;
}

void Actor::OnEnd(const StreamError& error) {
  if (const std::optional<std::string> text =
          recovery_.Apply(error, listener_->HasProgress(), Clock::now())) {
    listener_->Log(LogLevel::kWarning, *text);
  }
  Reconnect();
}

void Actor::CountFailure(const rpcenv::Failure& failure) {
  const auto task = decoder_ ? std::optional<int32_t>(decoder_->task()) : std::nullopt;
  listener_->Log(LogLevel::kError, recovery_.Count(failure, task, Clock::now()));
}

std::optional<Actor::Submission> Actor::OnReply() {
  const rpcenv::Reply& reply = stream_->reply();
  recovery_.OnAnswer();
  if (reply.has_fatal()) {
    CountFailure(reply.fatal());
    GiveUp(StreamError(StreamError::Remedy::kReconnect, "its environment failed"));
    return std::nullopt;
  }
  if (decoder_) {
    OnStepReply();
  } else {
    OnFirstReply();
  }
  if (row_ < options_.unroll_length) return MakeSubmission();
  DeliverRollouts();
  return std::nullopt;
}

void Actor::OnStepReply() {
  const rpcenv::Reply& reply = stream_->reply();
  decoder_->Check(reply);
  for (const rpcenv::Failure& failure : reply.failures()) CountFailure(failure);
  recovery_.OnProgress();
  progress_ = kAnswered;
  ++row_;
  for (size_t e = 0; e < rollouts_.size(); ++e) {
    rollouts_[e].WriteEnvOutput(row_, *decoder_, reply, static_cast<int64_t>(e), last_actions_[e]);
  }
}

void Actor::OnFirstReply() {
  auto decoder = std::make_unique<StepDecoder>(stream_options_.num_environments, stream_->reply());
  decoder->Check(stream_->reply());
  CheckEnvironment(*decoder);
  decoder_ = std::move(decoder);
  row_ = 0;
  for (int64_t e = 0; e < stream_options_.num_environments; ++e) {
    rollouts_.emplace_back(options_.unroll_length, decoder_->spec(), buffers_);
    rollouts_.back().WriteEnvOutput(0, *decoder_, stream_->reply(), e, /*last_action=*/0);
  }
  last_actions_.assign(stream_options_.num_environments, 0);
  agent_states_.assign(stream_options_.num_environments, options_.initial_agent_state.map(Shared));
  initial_states_ = agent_states_;
}

void Actor::CheckEnvironment(const StepDecoder& decoder) const {
  const std::vector<std::string>& wanted = options_.environments;
  if (wanted.empty()) return;
  const auto task = static_cast<size_t>(decoder.task());
  const std::string flags = "; give both sides the same flags";
  if (task >= wanted.size()) {
    throw StreamError(StreamError::Remedy::kEndRun,
                      "it serves game " + std::to_string(task) + " of its list, this run has " +
                          std::to_string(wanted.size()) + ", counted from 0" + flags);
  }
  if (decoder.environment().empty() || decoder.environment() == wanted[task]) return;
  throw StreamError(
      StreamError::Remedy::kEndRun,
      "it serves " + decoder.environment() + ", this run needs " + wanted[task] + " there" + flags);
}

Actor::Submission Actor::MakeSubmission() {
  Submission submission;
  submission.inputs.reserve(rollouts_.size());
  for (size_t e = 0; e < rollouts_.size(); ++e) {
    submission.inputs.push_back(
        TensorNest(TensorNest::Sequence{rollouts_[e].EnvOutput(row_), agent_states_[e]}));
  }
  submission.on_outputs =
      [self = shared_from_this()](std::optional<std::vector<DynamicBatcher::Slice>> slices) {
        self->OnOutputs(std::move(slices));
      };
  return submission;
}

void Actor::OnOutputs(std::optional<std::vector<DynamicBatcher::Slice>> slices) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  try {
    if (!slices) throw AsyncError();
    TakeActions(*slices);
    awaited_ = Awaited::kStep;
    const Clock::time_point now = Clock::now();
    // Not behind an opening, which is no step: a server that only opens makes no progress.
    if (progress_ == kAnswered) progress_ = now.time_since_epoch().count();
    deadline_ = now + options_.step_timeout;
    stream_->Step();
  } catch (...) {
    Fail();
  }
}

void Actor::TakeActions(const std::vector<DynamicBatcher::Slice>& slices) {
  rpcenv::Request& request = stream_->request();
  request.clear_actions();
  for (size_t e = 0; e < rollouts_.size(); ++e) {
    const DynamicBatcher::Slice& slice = slices[e];
    const TensorNest& outputs = Part(slice, 0);
    rollouts_[e].WriteAgentOutput(row_ + 1, outputs, slice.offset);
    agent_states_[e] = Part(slice, 1).map([&](const Tensor& state) {
      return Shared(CopySlice(state, 1, slice.offset, 1, *buffers_));
    });
    const Tensor& actions = outputs.front();
    if (actions.dtype != DType::kInt64 || actions.shape.NumElements() != actions.shape[1]) {
      throw std::invalid_argument("Actions must be one int64 for each environment, got " +
                                  ToString(LeafSpec{actions.dtype, actions.shape}));
    }
    std::memcpy(&last_actions_[e], actions.data + slice.offset * sizeof(int64_t), sizeof(int64_t));
    request.add_actions(last_actions_[e]);
  }
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
  listener_->Deliver(shared_from_this(), std::move(finished));
}

}  // namespace torchbeast
