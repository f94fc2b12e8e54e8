// The client's end of one stream of environments.
//
// Used by one thread; Cancel() may be called from any other and ends whatever that thread waits for.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "rpcenv.grpc.pb.h"
#include "sync.h"
#include "tls.h"
#include "wire.h"

namespace torchbeast {

// The server went away: worth another try.
class Disconnected : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Nobody answered within the whole timeout.
class NoServer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An environment raised: its traceback.
class EnvironmentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class EnvStream {
 public:
  EnvStream(const std::string& address, const Tls& tls, int64_t num_environments,
            bool newest_plane);
  EnvStream(const EnvStream&) = delete;
  EnvStream& operator=(const EnvStream&) = delete;
  // Cancels the stream.
  ~EnvStream();

  // Waits for the server, opens the environments and reads the first reply. Runs `poll` while
  // waiting. NoServer if there is no connection within `timeout`.
  void Open(std::chrono::milliseconds timeout, const Poll& poll);
  // Sends the actions in `request()`, reads and checks the next reply.
  void Step();
  void Cancel() { context_.TryCancel(); }

  const StepDecoder& decoder() const { return decoder_; }
  const rpcenv::Reply& reply() const { return reply_; }
  rpcenv::Request& request() { return request_; }

 private:
  // Ends the stream and throws what its status means.
  [[noreturn]] void ThrowStatus();

  const std::string address_;
  const int64_t num_environments_;
  const bool newest_plane_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<rpcenv::EnvironmentService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<rpcenv::Request, rpcenv::Reply>> stream_;
  StepDecoder decoder_;
  rpcenv::Request request_;
  rpcenv::Reply reply_;
};

}  // namespace torchbeast
