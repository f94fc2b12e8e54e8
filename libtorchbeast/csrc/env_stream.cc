#include "env_stream.h"

#include <chrono>

#include "sync.h"

namespace torchbeast {

namespace {

constexpr std::chrono::milliseconds kConnectSlice{200};

}  // namespace

EnvStream::EnvStream(const std::string& address, const Tls& tls, int64_t num_environments,
                     bool newest_plane, grpc::CompletionQueue* queue, Handler* handler)
    : num_environments_(num_environments), newest_plane_(newest_plane), queue_(queue) {
  for (int i = 0; i < kNumOperations; ++i) tags_[i] = {handler, static_cast<Operation>(i)};
  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : TransportSettings()) arguments.SetInt(name, value);
  channel_ = grpc::CreateCustomChannel(address, MakeChannelCredentials(tls), arguments);
  stub_ = rpcenv::EnvironmentService::NewStub(channel_);
}

void EnvStream::Connect() {
  num_pending_ = 1;
  const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
  channel_->NotifyOnStateChange(
      state,
      std::chrono::system_clock::now() +
          (state == GRPC_CHANNEL_READY ? std::chrono::milliseconds(0) : kConnectSlice),
      queue_, TagOf(Operation::kConnect));
}

void EnvStream::Open() {
  auto* open = request_.mutable_open();
  open->set_protocol_version(kProtocolVersion);
  open->set_num_environments(static_cast<uint32_t>(num_environments_));
  open->set_newest_plane(newest_plane_);
  num_pending_ = 1;
  stream_ = stub_->PrepareAsyncStep(&context_, queue_);
  stream_->StartCall(TagOf(Operation::kStart));
}

void EnvStream::Step() {
  // Both before either: completions come on another thread.
  num_pending_ = 2;
  stream_->Write(request_, TagOf(Operation::kWrite));
  stream_->Read(&reply_, TagOf(Operation::kRead));
}

void EnvStream::Finish() {
  num_pending_ = 1;
  stream_->Finish(&status_, TagOf(Operation::kFinish));
}

EnvStream::Event EnvStream::Advance(Operation operation, bool ok) {
  if (!ok) broken_ = true;
  switch (operation) {
    case Operation::kConnect:
      broken_ = false;  // A slice that passed without news is no failure.
      return channel_->GetState(false) == GRPC_CHANNEL_READY ? Event::kConnected
                                                             : Event::kConnecting;
    case Operation::kStart:
      if (!ok) return Event::kBroken;
      Step();
      return Event::kNothing;
    case Operation::kWrite:
    case Operation::kRead:
      if (--num_pending_ > 0) return Event::kNothing;
      request_.clear_open();
      return broken_ ? Event::kBroken : Event::kReply;
    case Operation::kFinish:
      return Event::kFinished;
  }
  return Event::kNothing;
}

}  // namespace torchbeast
