// The client's end of one stream of environments, as operations on a completion queue.
//
// Every operation's tag is a Tag*; whoever takes it off the queue hands it to Complete(), which
// says what has come to pass. At most one of Connect(), Open(), Step(), Finish() is under way at a
// time; Cancel() may be called from any thread and ends it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>

#include "rpcenv.grpc.pb.h"
#include "sync.h"
#include "transport.h"
#include "wire.h"

namespace torchbeast {

class EnvStream {
 public:
  enum class Operation { kConnect, kStart, kWrite, kRead, kFinish };
  enum class Event {
    kNothing,     // Another completion of the same operation is to come.
    kConnected,   // Follows Connect(): go on with Open().
    kConnecting,  // Follows Connect(): not yet, call it again.
    kReply,       // Follows Open() and Step(): reply() is new. Not yet checked.
    kBroken,      // Follows Open() and Step(): go on with Finish().
    kFinished,    // Follows Finish(): status() says why.
  };
  struct Tag {
    void* owner;
    Operation operation;
  };

  // `owner` goes into all tags.
  EnvStream(const std::string& address, const Tls& tls, int64_t num_environments, bool newest_plane,
            grpc::CompletionQueue* queue, void* owner);
  EnvStream(const EnvStream&) = delete;
  EnvStream& operator=(const EnvStream&) = delete;

  // Looks for the server for a moment.
  void Connect();
  // Opens the environments; their first observations follow.
  void Open();
  // Sends the actions in `request()`; their results follow.
  void Step();
  // Asks for the status of a broken stream.
  void Finish();
  void Cancel() { context_.TryCancel(); }

  // Takes in a completed operation.
  Event Complete(Operation operation, bool ok);

  const rpcenv::Reply& reply() const { return reply_; }
  rpcenv::Request& request() { return request_; }
  const grpc::Status& status() const { return status_; }

 private:
  Tag* TagOf(Operation operation) { return &tags_[static_cast<int>(operation)]; }

  const int64_t num_environments_;
  const bool newest_plane_;
  grpc::CompletionQueue* const queue_;
  Tag tags_[5];
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<rpcenv::EnvironmentService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<rpcenv::Request, rpcenv::Reply>> stream_;
  std::atomic<int> pending_{0};
  std::atomic<bool> broken_{false};
  rpcenv::Request request_;
  rpcenv::Reply reply_;
  grpc::Status status_;
};

}  // namespace torchbeast
