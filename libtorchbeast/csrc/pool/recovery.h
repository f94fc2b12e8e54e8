// What an actor does about a server in trouble: it waits, logs, or ends the run.
//
// The caller says what time it is. Not thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/errors.h"
#include "core/sync.h"
#include "pool/actor_options.h"
#include "rpcenv.pb.h"

namespace torchbeast {

class Recovery {
 public:
  // Both must outlive the object. The owner may change the address of `stream`.
  Recovery(const StreamOptions& stream, const ActorOptions& options);

  // Another server is to be connected to: what was wrong with the one before is over. Failures of
  // environments still count, since the next server has the same game.
  void OnNewAddress() { EndTrouble(); }
  // A stream begins. Returns until when it must be open.
  Clock::time_point OnConnect(Clock::time_point now);
  // The server answered anything.
  void OnAnswer() { answered_ = true; }
  // The server answered a step: what was wrong with it is over.
  void OnProgress();

  // Why the stream with this status ended.
  StreamError Explain(const grpc::Status& status) const;
  // What follows from the end of a stream because of `error`: returns what to log, if anything,
  // before the next attempt. Throws ServerFailure if the run is to end.
  // `others_answer`: whether the servers of other streams go on. If this stream had a server that
  // answered steps, its server may then stay away as long as it likes.
  std::optional<std::string> Apply(const StreamError& error, bool others_answer,
                                   Clock::time_point now);
  // Counts the failure of an environment of game `task`, if that is known; returns what to log.
  // Throws WireError if there is no such environment, ServerFailure if it failed too often.
  std::string Count(const rpcenv::Failure& failure, std::optional<int32_t> task,
                    Clock::time_point now);
  // How long to wait before the next attempt.
  std::chrono::milliseconds NextBackoff();

 private:
  void EndTrouble();

  const StreamOptions& stream_options_;
  const ActorOptions& options_;
  // When the server must have answered a step; not set while it does.
  std::optional<Clock::time_point> deadline_;
  std::chrono::milliseconds backoff_;
  // Whether the server answered anything on the present stream.
  bool answered_ = false;
  // Why the last stream ended in the present trouble.
  std::string last_reason_;
  // Whether the present trouble has been logged.
  bool logged_ = false;
  // Whether any server of this stream ever answered a step.
  bool has_worked_ = false;
  // By environment: when it failed.
  std::vector<std::deque<Clock::time_point>> environment_failures_;
};

// "1.5 s".
std::string Seconds(std::chrono::milliseconds time);

}  // namespace torchbeast
