// What a stream's status means for the run.
#pragma once

#include <grpcpp/grpcpp.h>

#include "core/errors.h"

namespace torchbeast {

// What is known of a stream beside its status.
struct StreamHistory {
  // Whether the connection is encrypted.
  bool tls = false;
  // Whether the server answered anything.
  bool answered = false;
  // How often in succession, this time included, a server was reached and hung up unanswered.
  int num_hang_ups = 0;
};

// With the actors' backoff some five seconds: no server that is only about to start.
inline constexpr int kManyHangUps = 8;

// Whether the server was reached and ended the connection without a word.
bool IsHangUp(const grpc::Status& status, const StreamHistory& history);

// Why a stream with this status ended. TLS failures are told apart by who refused whom.
StreamError ExplainStatus(const grpc::Status& status, const StreamHistory& history);

}  // namespace torchbeast
