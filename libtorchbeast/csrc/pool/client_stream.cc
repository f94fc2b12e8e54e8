#include "pool/client_stream.h"

#include "core/sync.h"

namespace torchbeast {

ClientStream::ClientStream(const std::string& address, const Tls& tls, int64_t num_environments,
                           int max_message_bytes, grpc::CompletionQueue* queue, Actor* actor)
    : queue_(queue) {
  for (int i = 0; i < kNumOperations; ++i) tags_[i] = {actor, static_cast<Operation>(i)};
  stub_ = rpcenv::EnvironmentService::NewStub(MakeChannel(address, tls, max_message_bytes));
  auto* open = request_.mutable_open();
  open->set_protocol_version(kProtocolVersion);
  open->set_num_environments(static_cast<uint32_t>(num_environments));
}

ClientStream::Tag* ClientStream::TagOf(Operation operation) {
  Tag* tag = &tags_[static_cast<int>(operation)];
  TB_OPERATION_STARTS(tag);
  return tag;
}

void ClientStream::Open() {
  stream_ = stub_->PrepareAsyncStep(&context_, queue_);
  stream_->StartCall(TagOf(Operation::kStart));
}

void ClientStream::Step() {
  request_.set_step(request_.step() + 1);
  SendAndReceive();
}

void ClientStream::SendAndReceive() {
  // Both before either: completions come on another thread.
  num_pending_ = 2;
  stream_->Write(request_, TagOf(Operation::kWrite));
  stream_->Read(&reply_, TagOf(Operation::kRead));
}

void ClientStream::Finish() { stream_->Finish(&status_, TagOf(Operation::kFinish)); }

ClientStream::Event ClientStream::Advance(Operation operation, bool ok) {
  if (!ok) broken_ = true;
  switch (operation) {
    case Operation::kStart:
      if (!ok) return Event::kBroken;
      SendAndReceive();
      return Event::kNothing;
    case Operation::kWrite:
    case Operation::kRead:
      if (--num_pending_ > 0) return Event::kNothing;
      if (broken_) return Event::kBroken;
      request_.clear_open();
      if (reply_.step() != request_.step()) {
        throw WireError("answer to step " + std::to_string(reply_.step()) + " instead of step " +
                        std::to_string(request_.step()));
      }
      return Event::kReply;
    case Operation::kFinish:
      return Event::kFinished;
  }
  return Event::kNothing;
}

}  // namespace torchbeast
