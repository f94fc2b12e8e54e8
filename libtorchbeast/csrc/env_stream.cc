#include "env_stream.h"

#include <algorithm>

namespace torchbeast {

EnvStream::EnvStream(const std::string& address, const Tls& tls, int64_t num_environments,
                     bool newest_plane)
    : address_(address),
      num_environments_(num_environments),
      newest_plane_(newest_plane),
      decoder_(num_environments) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // One connection per stream: streams that share one also share its single writer.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  channel_ = grpc::CreateCustomChannel(address, MakeChannelCredentials(tls), arguments);
  stub_ = rpcenv::EnvironmentService::NewStub(channel_);
}

EnvStream::~EnvStream() {
  if (!stream_) return;
  context_.TryCancel();
  stream_->Finish();
}

void EnvStream::Open(std::chrono::milliseconds timeout, const Poll& poll) {
  const auto deadline = std::chrono::system_clock::now() + timeout;
  constexpr std::chrono::milliseconds kSlice{200};
  while (!channel_->WaitForConnected(
      std::min(deadline, std::chrono::system_clock::now() + kSlice))) {
    if (poll) poll();
    if (std::chrono::system_clock::now() >= deadline) {
      throw NoServer("No environment server answered at " + address_ + " within " +
                     std::to_string(timeout.count() / 1000) + " s");
    }
  }
  stream_ = stub_->Step(&context_);
  auto* open = request_.mutable_open();
  open->set_protocol_version(kProtocolVersion);
  open->set_num_environments(static_cast<uint32_t>(num_environments_));
  open->set_newest_plane(newest_plane_);
  if (!stream_->Write(request_)) ThrowStatus();
  request_.Clear();
  if (!stream_->Read(&reply_)) ThrowStatus();
  decoder_.ReadSchema(reply_);
  decoder_.Check(reply_);
}

void EnvStream::Step() {
  if (!stream_->Write(request_)) ThrowStatus();
  if (!stream_->Read(&reply_)) ThrowStatus();
  decoder_.Check(reply_);
}

void EnvStream::ThrowStatus() {
  const grpc::Status status = stream_->Finish();
  stream_.reset();
  const std::string message = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::INTERNAL:
      throw EnvironmentError(message);
    case grpc::StatusCode::OK:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::ABORTED:
      throw Disconnected("environment server at " + address_ + " went away" +
                         (message.empty() ? "" : ": " + message));
    default:
      throw WireError("environment server at " + address_ + ": " + message);
  }
}

}  // namespace torchbeast
