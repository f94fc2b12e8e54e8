// The client's end of one stream of environments, as operations on a completion queue.
//
// Every operation's tag is a Tag*; whoever takes it off the queue calls its actor, which asks
// Advance() what the completion means. At most one of Open(), Step(), Finish() is under way at a
// time; Cancel() may be called from any thread and ends it. All else is for one thread at a time.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "rpcenv.grpc.pb.h"
#include "wire/transport.h"
#include "wire/wire.h"

namespace torchbeast {

class Actor;

class ClientStream {
 public:
  enum class Operation { kStart, kWrite, kRead, kFinish };
  static constexpr int kNumOperations = 4;
  // What a completed operation means.
  enum class Event {
    kNothing,   // More completions come before there is anything to do.
    kReply,     // Follows Open() and Step(): reply() is new. Not yet checked, but for its number.
    kBroken,    // Follows Open() and Step(): go on with Finish().
    kFinished,  // Follows Finish(): status() says why.
  };
  // What the completion queue returns for an operation.
  struct Tag {
    Actor* actor = nullptr;
    Operation operation = Operation::kStart;
  };

  // `actor` goes into all tags.
  ClientStream(const std::string& address, const Tls& tls, int64_t num_environments,
               int max_message_bytes, grpc::CompletionQueue* queue, Actor* actor);
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  // Connects and opens the environments; their first observations follow. Breaks at once if nobody
  // listens.
  void Open();
  // Sends the actions in `request()`; their results follow.
  void Step();
  // Asks for the status of a broken stream, or of one that the caller gives up, after Cancel().
  void Finish();
  void Cancel() { context_.TryCancel(); }

  // Takes in a completed operation. WireError if the reply answers another step.
  Event Advance(Operation operation, bool ok);

  const rpcenv::Reply& reply() const { return reply_; }
  rpcenv::Request& request() { return request_; }
  const grpc::Status& status() const { return status_; }

 private:
  Tag* TagOf(Operation operation);
  void SendAndReceive();

  grpc::CompletionQueue* const queue_;
  Tag tags_[kNumOperations];
  std::unique_ptr<rpcenv::EnvironmentService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<rpcenv::Request, rpcenv::Reply>> stream_;
  // How many of a write and a read have not completed.
  int num_pending_ = 0;
  bool broken_ = false;
  rpcenv::Request request_;
  rpcenv::Reply reply_;
  grpc::Status status_;
};

}  // namespace torchbeast
